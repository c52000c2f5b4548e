"""Writing a store: rows as tables, files of them clustered by class, the head, the failures, and the manifest last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ghost_ray.files import join, kind_of, names_in, resolve
from ghost_ray.files.digests import HashingFile, digest_of
from ghost_ray.files.manifest import write_manifest
from ghost_ray.files.tensors import write_tensors
from ghost_ray.rows import Head
from ghost_ray.store.layout import (
    FAILURES,
    FAILURES_SCHEMA,
    FILE_BYTES,
    GROUP_BYTES,
    HEAD,
    StoreManifest,
)
from ghost_ray.store.row_files import as_batches
from ghost_ray.store.row_groups import INDEX, RowFile, group_array, write_index


def row_schema(dimensions: int, classes: int | None = None) -> pa.Schema:
    """Arrow schema of the rows; ``classes`` is passed where logits are stored because no linear head is known."""
    fields = [
        pa.field("key", pa.string(), nullable=False),
        pa.field("label", pa.int32(), nullable=False),
        pa.field("pred", pa.int32(), nullable=False),
        pa.field("group", pa.string()),  # of an unknown, the class or folder it came from
        pa.field("embedding", _vector(dimensions), nullable=False),
    ]
    if classes is not None:
        fields.append(pa.field("logits", _vector(classes), nullable=False))
    return pa.schema(fields)


def _vector(size: int) -> pa.DataType:
    return pa.list_(pa.field("element", pa.float32(), nullable=False), size)


def vector_column(values: np.ndarray) -> pa.FixedSizeListArray:
    """A [n, D] float32 array as a column, without copying."""
    if values.shape[1] == 0:
        raise ValueError("rows without a number")  # Arrow divides by the length of a row, which ends the process
    flat = pa.array(np.ascontiguousarray(values, dtype=np.float32).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, type=_vector(values.shape[1]))


def numbers_of(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """A column of numbers as [n], one array without copying; none may be missing. `to_numpy` would import pandas."""
    kind = np.dtype(column.type.to_pandas_dtype())
    if isinstance(column, pa.ChunkedArray):
        return np.concatenate([np.empty(0, kind), *(numbers_of(chunk) for chunk in column.chunks)])
    return np.frombuffer(column.buffers()[1] or b"", kind, len(column), column.offset * kind.itemsize)


def vectors_of(column: pa.FixedSizeListArray) -> np.ndarray:
    """A column of vectors as [n, D], without copying unless numbers are missing; these become NaN."""
    values = column.flatten()
    flat = values.to_numpy(zero_copy_only=False) if values.null_count else numbers_of(values)
    return np.asarray(flat).reshape(-1, column.type.list_size)


def to_table(
    key: pa.Array,
    label: np.ndarray,
    pred: np.ndarray,
    embedding: np.ndarray,
    logits: np.ndarray | None = None,
    group: pa.Array | None = None,
) -> pa.Table:
    """Arrays of equal length as a table of the store's schema."""
    columns: list[Any] = [
        key,
        pa.array(np.asarray(label, np.int32)),
        pa.array(np.asarray(pred, np.int32)),
        pa.nulls(len(key), pa.string()) if group is None else group,
        vector_column(embedding),
    ]
    if logits is not None:
        columns.append(vector_column(logits))
    schema = row_schema(embedding.shape[1], None if logits is None else logits.shape[1])
    return pa.Table.from_arrays(columns, schema=schema)


def hash_keys(keys: pa.Array, seed: int = 0) -> np.ndarray:
    """A stable 64-bit hash of each key, [n] uint64; another seed gives another one."""
    import pandas as pd  # as a whole: threads that import only parts of it at once would meet half of them

    values = np.asarray(keys.to_numpy(zero_copy_only=False), dtype=object)
    hashed: np.ndarray = pd.util.hash_array(values, hash_key=f"{seed % (1 << 64):016x}", categorize=False)
    return hashed


def row_keys(rows: np.ndarray, total: int) -> pa.Array:
    """The numbers of rows among ``total`` as their keys, if they have no names."""
    width = len(str(total))
    return pa.array([f"{row:0{width}d}" for row in rows.tolist()], pa.string())


class ClusteredWriter:
    """Writes rows that arrive sorted by label into files whose row groups never split a small class.

    Parameters
    ----------
    folder : str
        The store's (staging) folder.
    prefix : str
        Start of the file names; several writers of one store take different prefixes.
    """

    def __init__(
        self,
        folder: str,
        prefix: str,
        schema: pa.Schema,
        *,
        group_bytes: int = GROUP_BYTES,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._folder, self._prefix, self._schema = join(folder, "rows"), prefix, schema
        vectors = [f.type.list_size for f in schema if pa.types.is_fixed_size_list(f.type)]
        self._group_rows = _rows_in(group_bytes, 4 * sum(vectors))
        self._file_rows = _rows_in(file_bytes, 4 * sum(vectors))
        self._pending: list[pa.Table] = []
        self._file: HashingFile | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self.files: list[RowFile] = []

    def write(self, table: pa.Table) -> None:
        """Append rows; all labels in them are at or above those written before."""
        self._pending.append(table)
        if sum(t.num_rows for t in self._pending) >= 4 * self._group_rows:
            self._flush(final=False)

    def close(self) -> list[RowFile]:
        """Write what is pending and finish the last file; returns all files written."""
        self._flush(final=True)
        self._finish_file()
        return self.files

    def _flush(self, *, final: bool) -> None:
        table = pa.concat_tables(self._pending) if self._pending else self._schema.empty_table()
        labels = table.column("label").to_numpy()
        done = 0
        for stop in group_ends(labels, self._group_rows):
            # The last group may continue in rows still to come.
            if stop == len(labels) and not final:
                break
            self._write_group(table.slice(done, stop - done), labels[done:stop])
            done = stop
        self._pending = [table.slice(done)] if done < table.num_rows else []

    def _write_group(self, table: pa.Table, labels: np.ndarray) -> None:
        if self._writer is None:
            empty = _empty_file(self._prefix, len(self.files))
            filesystem, path = resolve(join(self._folder, empty.name))
            filesystem.create_dir(resolve(self._folder)[1], recursive=True)
            self._file = HashingFile(filesystem.open_output_stream(path))
            self._writer = pa.ipc.new_file(self._file, self._schema)
            self.files.append(empty)
        for batch in as_batches(table):
            self._writer.write_batch(batch)
        self.files[-1] = _with_group(self.files[-1], labels)
        if self.files[-1].rows >= self._file_rows:
            self._finish_file()

    def _finish_file(self) -> None:
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.close()
            self.files[-1] = replace(self.files[-1], digest=self._file.digest())
            self._writer = self._file = None


def group_ends(labels: np.ndarray, group_rows: int) -> list[int]:
    """Where row groups end in sorted ``labels`` [n]: at class borders, and within a class only if it is too large."""
    ends: list[int] = []
    borders = [*(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)] if len(labels) else []
    start = 0
    previous = 0
    for border in borders:
        if border - start > group_rows and previous > start:
            ends.append(previous)
            start = previous
        while border - start > 2 * group_rows:
            start += group_rows
            ends.append(start)
        previous = border
    if borders and start < len(labels):
        ends.append(len(labels))
    return ends


def row_order(labels: np.ndarray) -> np.ndarray:
    """The order of a store's rows, [n], from their labels as they came."""
    return np.argsort(labels, kind="stable")


def lay_out(
    labels: np.ndarray, row_bytes: int, *, group_bytes: int = GROUP_BYTES, file_bytes: int = FILE_BYTES
) -> list[RowFile]:
    """The files and row groups that a `ClusteredWriter` makes of rows with these labels, which are in order."""
    files: list[RowFile] = []
    start = 0
    for stop in group_ends(labels, _rows_in(group_bytes, row_bytes)):
        if not files or files[-1].rows >= _rows_in(file_bytes, row_bytes):
            files.append(_empty_file("part", len(files)))
        files[-1] = _with_group(files[-1], labels[start:stop])
        start = stop
    return files


def _rows_in(size: int, row_bytes: int) -> int:
    return max(1, size // row_bytes)


def _empty_file(prefix: str, number: int) -> RowFile:
    return RowFile(f"{prefix}-{number:04d}.arrow")


def _with_group(file: RowFile, labels: np.ndarray) -> RowFile:
    group = (len(labels), int(labels[0]), int(labels[-1]))
    return RowFile(file.name, group_array([*file.groups.tolist(), group]))


def write_head(folder: str, head: Head) -> None:
    """Write head.safetensors: weight [K, D] and bias [K] float32."""
    tensors = {
        "weight": np.ascontiguousarray(head.weight, np.float32),
        "bias": np.ascontiguousarray(head.bias, np.float32),
    }
    write_tensors(join(folder, HEAD), tensors)


def write_failures(folder: str, failures: pa.Table) -> None:
    """Write failures.parquet: key, stage, error of every input that could not be embedded."""
    import pyarrow.parquet as pq  # which no reader of a store needs

    filesystem, path = resolve(join(folder, FAILURES))
    pq.write_table(failures.cast(FAILURES_SCHEMA), path, filesystem=filesystem)


def finish_store(folder: str, manifest: StoreManifest, files: Sequence[RowFile] | None = None) -> StoreManifest:
    """Mark a store complete: write its index, and its manifest last; returns the manifest as it was written.

    The manifest lists the rows' digests as their writers computed them. Without ``files`` there is no index: a reader
    asks every file below ``rows/`` for its row groups.
    """
    small = [name for name in (HEAD, FAILURES) if kind_of(join(folder, name)) == "file"]
    digests = {name: digest_of(join(folder, name)) for name in small}
    if files is not None:
        digests[INDEX] = write_index(folder, files)
        manifest = manifest.model_copy(update={"files": [file.name for file in files]})
    known = {file.name: file.digest for file in files or []}
    for name in known or names_in(join(folder, "rows")):
        where = f"rows/{name}"
        digests[where] = known.get(name) or digest_of(join(folder, where))
    return write_manifest(folder, manifest, digests)
