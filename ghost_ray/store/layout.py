"""The layout of a store on disk: its manifest, its Arrow schema, its sizes."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypedDict

import numpy as np
import pyarrow as pa
from pydantic import Field

from ghost_ray.files.manifest import Manifest

HEAD = "head.safetensors"
FAILURES = "failures.parquet"
FAILURES_SCHEMA = pa.schema([("key", pa.string()), ("stage", pa.string()), ("error", pa.string())])
STORE_FORMAT = 3  # since the row groups have a file of their own; formats 1 and 2 were never released
# A row group this large keeps the per-group overhead small; a task reading a few of them stays in memory.
GROUP_BYTES = 8 << 20
FILE_BYTES = 256 << 20


class StoreManifest(Manifest):
    """Manifest of a store.

    ``layout`` clustered: rows are sorted by label, row groups hold whole classes. ``order`` hash: the rows of a class
    are in the order of `hash_keys` of their keys, so that the first ones are a random sample.
    """

    reads: ClassVar[tuple[int, ...]] = (STORE_FORMAT,)

    format_version: int = STORE_FORMAT
    kind: Literal["store"] = "store"
    layout: Literal["clustered", "unordered"] = "unordered"
    order: Literal["hash"] | None = None
    files: list[str] | None = None  # their names in the order of the index; None if there is no index
    class_names: list[str] | None = None
    has_head: bool = True
    failures: int = Field(0, ge=0)
    accuracy: float | None = Field(None, ge=0, le=1)  # of the rows with a label, where it was counted
    seconds: dict[str, float] = {}
    batch_size: int | None = None  # of the forward passes: smaller than requested if that did not fit into memory

    def row_names(self) -> list[str]:
        """The names of the files below ``rows/`` whose digests were recorded."""
        return [name.removeprefix("rows/") for name in self.digests or {} if name.startswith("rows/")]


# Of one class: its index, its name and how many rows there are.
ClassCount = TypedDict("ClassCount", {"class": int, "name": str, "n": int})


def row_schema(dimensions: int, classes: int | None = None) -> pa.Schema:
    """Arrow schema of the rows; ``classes`` is given where logits are stored because no linear head is known."""
    fields = [
        pa.field("key", pa.string(), nullable=False),
        pa.field("label", pa.int32(), nullable=False),
        pa.field("pred", pa.int32(), nullable=False),
        pa.field("embedding", _vector(dimensions), nullable=False),
    ]
    if classes is not None:
        fields.append(pa.field("logits", _vector(classes), nullable=False))
    return pa.schema(fields)


def _vector(size: int) -> pa.DataType:
    # Parquet reads non-null children without definition levels: a third faster.
    return pa.list_(pa.field("element", pa.float32(), nullable=False), size)


def vector_column(values: np.ndarray) -> pa.FixedSizeListArray:
    """A [n, D] float32 array as a Parquet-ready column, without copying."""
    if values.shape[1] == 0:
        raise ValueError("rows without a number")  # Arrow divides by the length of a row, which ends the process
    flat = pa.array(np.ascontiguousarray(values, dtype=np.float32).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, type=_vector(values.shape[1]))


def to_table(
    key: pa.Array,
    label: np.ndarray,
    pred: np.ndarray,
    embedding: np.ndarray,
    logits: np.ndarray | None = None,
) -> pa.Table:
    """Arrays of equal length as a table of the store's schema."""
    columns: list[Any] = [
        key,
        pa.array(np.asarray(label, np.int32)),
        pa.array(np.asarray(pred, np.int32)),
        vector_column(embedding),
    ]
    if logits is not None:
        columns.append(vector_column(logits))
    schema = row_schema(embedding.shape[1], None if logits is None else logits.shape[1])
    return pa.Table.from_arrays(columns, schema=schema)
