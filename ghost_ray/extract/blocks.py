"""Block files: what a block of images has become, before it is part of a store."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from ray.data.datasource import BlockBasedFileDatasink

from ghost_ray.store import row_schema

SECONDS = ("read", "decode", "embed")
WRITE_SECONDS = "write_seconds"  # known when all rows are written: in the file's metadata


def block_schema(dimensions: int) -> pa.Schema:
    """A store's row, and beside it what became of the image and its share of the block's time."""
    fields = [pa.field("failed", pa.bool_()), pa.field("stage", pa.string()), pa.field("error", pa.string())]
    fields += [pa.field(f"{name}_seconds", pa.float32()) for name in SECONDS]
    return pa.schema([*row_schema(dimensions), *fields])


def constant_column(value: float, rows: int) -> pa.Array:
    """``value`` for every row, float32."""
    return pa.array(np.full(rows, value, np.float32))


class BlockSink(BlockBasedFileDatasink):
    """Writes each block to a Parquet file of its own and tells the tally what is in it.

    A file-based sink of Ray Data, which wraps the two phases of its checkpoint around every write.
    """

    def __init__(self, path: str, filesystem: fs.FileSystem, schema: pa.Schema, tally: Any) -> None:
        super().__init__(path, filesystem=filesystem, file_format="parquet")
        self._block_schema, self._tally = schema, tally

    def write_block_to_file(self, block: Any, file: pa.NativeFile) -> None:
        start = time.perf_counter()
        table = block.to_arrow().select(self._block_schema.names).cast(self._block_schema)
        with pq.ParquetWriter(file, table.schema, compression="none", use_dictionary=False) as writer:
            writer.write_table(table)
            seconds = time.perf_counter() - start
            writer.add_key_value_metadata({WRITE_SECONDS: str(seconds)})
        self._tally.report(table, seconds)
