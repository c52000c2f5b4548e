"""A block of images as one row of Ray Data.

Ray Data joins and splits tables according to their bytes. A single row is never split, so a block stays whole from the
task that listed it to its file: one commit, and whole batches. Packing and unpacking copy nothing.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_COLUMN = "block"


def pack(table: pa.Table) -> pa.Table:
    """A table as one row."""
    whole = table.combine_chunks()
    columns = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in whole.columns]
    rows = pa.StructArray.from_arrays(columns, fields=list(whole.schema))
    return pa.table({_COLUMN: pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)})


def unpack(packed: pa.Table) -> pa.Table:
    """The table that was packed into the row."""
    (column,) = packed[_COLUMN].chunks
    rows = column.flatten()
    return pa.Table.from_arrays(rows.flatten(), schema=pa.schema(list(rows.type)))


def on_blocks(kind: type) -> type:
    """The class with the same name whose instances are called with a packed table and give one."""

    def call(self: Any, packed: pa.Table) -> pa.Table:
        # A task that gave no block leaves an empty table behind, without columns.
        return pack(kind.__call__(self, unpack(packed))) if packed.num_rows else packed

    return type(kind.__name__, (kind,), {"__call__": call})
