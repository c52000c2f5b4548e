"""Writing a store: rows clustered by class, the head, the failures, and the manifest last."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.files import join, resolve
from ghost_ray.manifest import write_manifest
from ghost_ray.store.layout import (
    FAILURES,
    FAILURES_SCHEMA,
    FILE_BYTES,
    GROUP_BYTES,
    HEAD,
    RowFile,
    RowGroup,
    StoreManifest,
)
from ghost_ray.tensors import write_tensors


class ClusteredWriter:
    """Writes rows that arrive sorted by label into files whose row groups never cut through a small class.

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
        self._group_rows = max(1, group_bytes // (4 * sum(vectors)))
        self._file_rows = max(1, file_bytes // (4 * sum(vectors)))
        self._pending: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None
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
            # The last group may go on in rows still to come.
            if stop == len(labels) and not final:
                break
            self._write_group(table.slice(done, stop - done), labels[done:stop])
            done = stop
        self._pending = [table.slice(done)] if done < table.num_rows else []

    def _write_group(self, table: pa.Table, labels: np.ndarray) -> None:
        if self._writer is None:
            name = f"{self._prefix}-{len(self.files):04d}.parquet"
            filesystem, path = resolve(join(self._folder, name))
            filesystem.create_dir(resolve(self._folder)[1], recursive=True)
            self._writer = pq.ParquetWriter(
                path,
                self._schema,
                filesystem=filesystem,
                compression="none",  # embeddings do not compress; plain pages read fastest
                use_dictionary=False,
                write_statistics=["label"],
                data_page_size=GROUP_BYTES,
            )
            self.files.append(RowFile(name=name, rows=0, groups=[]))
        self._writer.write_table(table, row_group_size=table.num_rows)
        file = self.files[-1]
        group = RowGroup(rows=len(labels), first_label=int(labels[0]), last_label=int(labels[-1]))
        self.files[-1] = RowFile(name=file.name, rows=file.rows + group.rows, groups=[*file.groups, group])
        if self.files[-1].rows >= self._file_rows:
            self._finish_file()

    def _finish_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


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


def write_head(folder: str, weight: np.ndarray, bias: np.ndarray) -> None:
    """Write head.safetensors: weight [K, D] and bias [K] float32."""
    tensors = {
        "weight": np.ascontiguousarray(weight, np.float32),
        "bias": np.ascontiguousarray(bias, np.float32),
    }
    write_tensors(join(folder, HEAD), tensors)


def write_failures(folder: str, failures: pa.Table) -> None:
    """Write failures.parquet: key, stage, error of every input that could not be embedded."""
    filesystem, path = resolve(join(folder, FAILURES))
    pq.write_table(failures.cast(FAILURES_SCHEMA), path, filesystem=filesystem)


def finish_store(folder: str, manifest: StoreManifest) -> None:
    """Mark a store complete."""
    write_manifest(folder, manifest)
