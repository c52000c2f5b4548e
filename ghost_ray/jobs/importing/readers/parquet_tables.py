"""Parquet files, and folders of them, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.files import join, kind_of, name_of, names_in, resolve
from ghost_ray.jobs.importing.readers.array_file import ArrayFile, reads
from ghost_ray.jobs.importing.readers.tables import Column, Table, TableFile
from ghost_ray.jobs.importing.workspace import Workspace

_BATCH_ROWS = 4096
_BUFFER_BYTES = 1 << 20  # read of a column at a time, rather than the column of a whole row group


@reads("parquet")
def _open_parquet(uri: str, workspace: Workspace) -> ArrayFile:
    if kind_of(uri) == "file":
        files = [uri]
    else:
        files = [join(uri, name) for name in names_in(uri) if name.endswith(".parquet")]
        if not files:
            raise ValueError("holds no .parquet file; for other formats, name a single file")
    return TableFile(_ParquetTable(files), workspace)


class _ParquetTable(Table):
    kind = "parquet"

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self.rows = 0
        schema: pa.Schema | None = None
        for file in files:
            with self._open(file) as parquet:
                found = parquet.schema_arrow.remove_metadata()
                schema = schema or found
                if not found.equals(schema):
                    raise ValueError(f"{name_of(file)} has other columns than {name_of(files[0])}")
                self.rows += parquet.metadata.num_rows
        assert schema is not None
        if len(set(schema.names)) < len(schema.names):
            raise ValueError("two of its columns have the same name")
        self.columns = [_column(field) for field in schema]

    def _open(self, file: str) -> pq.ParquetFile:
        filesystem, path = resolve(file)
        try:
            return pq.ParquetFile(path, filesystem=filesystem, buffer_size=_BUFFER_BYTES)
        except pa.ArrowException as error:
            raise ValueError(f"{name_of(file)} cannot be read: {error}") from None

    def _batches(self, names: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches with the row each begins at."""
        start = 0
        for file in self._files:
            with self._open(file) as parquet:
                try:
                    # With several row groups at once, Arrow would keep those already read in memory.
                    for group in range(parquet.num_row_groups):
                        for batch in parquet.iter_batches(_BATCH_ROWS, [group], list(names), use_threads=False):
                            yield start, batch
                            start += batch.num_rows
                except pa.ArrowException as error:
                    raise ValueError(f"{name_of(file)} cannot be read: {error}") from None

    def numbers(self, names: Sequence[str]) -> Iterator[np.ndarray]:
        for _, batch in self._batches(names):
            block = np.empty((batch.num_rows, len(names)), np.float32)
            for place, name in enumerate(names):
                block[:, place] = batch.column(name).to_numpy(zero_copy_only=False)
            yield block

    def lists(self, name: str) -> Iterator[np.ndarray]:
        width: int | None = None
        for start, batch in self._batches([name]):
            lists = batch.column(name)
            lists = lists.storage if isinstance(lists.type, pa.BaseExtensionType) else lists
            if lists.null_count:
                raise ValueError(f"row {start + lists.is_null().to_numpy(zero_copy_only=False).argmax()} has no {name}")
            sizes = lists.value_lengths().to_numpy(zero_copy_only=False) if not _fixed(lists) else None
            if sizes is not None and len(sizes):
                width = int(sizes[0]) if width is None else width
                if (sizes != width).any():
                    odd = int((sizes != width).argmax())
                    raise ValueError(f"row {start + odd} of {name} has {sizes[odd]} values, row 0 has {width}")
            elif sizes is None:
                width = lists.type.list_size
            yield lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), width or 0)

    def values(self, name: str) -> pa.ChunkedArray:
        return pa.chunked_array([batch.column(name) for _, batch in self._batches([name])])


def _fixed(lists: Any) -> bool:
    return bool(pa.types.is_fixed_size_list(lists.type))


def _column(field: pa.Field) -> Column:
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return Column(field.name, "numbers", str(kind))
    if pa.types.is_string(text) or pa.types.is_large_string(text):
        return Column(field.name, "text", "text")
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if is_list and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        width = kind.list_size if pa.types.is_fixed_size_list(kind) else None
        return Column(field.name, "lists", f"lists of {kind.value_type}", width)
    return Column(field.name, "other", str(kind))
