"""The store: embeddings, labels and predictions of one data set under one network, on disk.

Layout (DESIGN: the files)::

    STORE/manifest.json         written last: its presence means the store is complete
    STORE/head.safetensors      weight [K, D], bias [K] of the network's last linear layer, where it is known
    STORE/rows/*.parquet        key, label, pred, embedding [D], and logits [K] where there is no linear head
    STORE/failures.parquet      key, stage, error

In a *clustered* store the rows are sorted by label and every Parquet row group holds whole classes (or a part
of one very large class), so a reader brings the samples of a class together by reading nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from ghost_ray.errors import InputError, one_line
from ghost_ray.files import join, kind_of, read_bytes, redact, resolve, write_bytes
from ghost_ray.manifest import Manifest, Part, read_manifest, write_manifest

HEAD = "head.safetensors"
FAILURES = "failures.parquet"
FAILURES_SCHEMA = pa.schema([("key", pa.string()), ("stage", pa.string()), ("error", pa.string())])
UNKNOWN = -1
# A row group this large keeps the per-group overhead small; a task reading a few of them stays in memory.
GROUP_BYTES = 8 << 20
FILE_BYTES = 256 << 20
_MAX_TENSOR_FILE = 64 << 30


class RowGroup(Part):
    """One Parquet row group: how many rows, and the smallest and largest label in it."""

    rows: int
    first_label: int
    last_label: int


class RowFile(Part):
    """One file below ``rows/``."""

    name: str
    rows: int
    groups: list[RowGroup]


class StoreManifest(Manifest):
    """Manifest of a store. ``layout`` clustered: rows lie sorted by label, row groups hold whole classes."""

    kind: Literal["store"] = "store"
    layout: Literal["clustered", "unordered"] = "unordered"
    files: list[RowFile] | None = None
    class_names: list[str] | None = None
    has_head: bool = True
    failures: int = 0
    seconds: dict[str, float] = {}


@dataclass(frozen=True)
class Rows:
    """Rows of a store as arrays: label [n] int32, pred [n] int32, embedding [n, D] float32, logits [n, K] or None."""

    label: np.ndarray
    pred: np.ndarray
    embedding: np.ndarray
    logits: np.ndarray | None = None
    key: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.label)

    @property
    def correct(self) -> np.ndarray:
        """Which rows the network classified correctly, [n] bool."""
        return self.label == self.pred


@dataclass(frozen=True)
class Piece:
    """Consecutive row groups of one file: the unit a task reads."""

    file: str
    groups: tuple[int, ...]
    rows: int
    first_label: int
    last_label: int


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


class Store:
    """A complete store, opened for reading.

    >>> store = Store.open("runs/train")  # doctest: +SKIP
    >>> for piece in store.pieces():  # doctest: +SKIP
    ...     rows = store.read(piece)
    """

    def __init__(self, uri: str, manifest: StoreManifest, files: list[RowFile]) -> None:
        self.uri, self.manifest, self.files = uri, manifest, files

    @classmethod
    def open(cls, uri: str, field: str = "STORE") -> Store:
        """Open and check a store: manifest readable, every row file there."""
        manifest = read_manifest(uri, StoreManifest, field, "ghost-ray extract … --out STORE")
        filesystem, path = resolve(join(uri, "rows"))
        listing = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        present = {info.base_name for info in listing if info.base_name.endswith(".parquet")}
        if manifest.files is None:
            files = [_inspect(uri, name, field) for name in sorted(present)]
        else:
            files = manifest.files
            for file in files:
                if file.name not in present:
                    raise InputError(
                        field, redact(uri), f"rows/{file.name} is missing", "extract the store again"
                    )
        counted = sum(file.rows for file in files)
        if counted != manifest.rows:
            raise InputError(
                field,
                redact(uri),
                f"its files hold {counted} rows, the manifest says {manifest.rows}",
                "extract again",
            )
        return cls(uri, manifest, files)

    @property
    def classes(self) -> int:
        return self.manifest.network.classes

    @property
    def dimensions(self) -> int:
        return self.manifest.network.dimensions

    @property
    def rows(self) -> int:
        return self.manifest.rows

    def class_name(self, index: int) -> str:
        names = self.manifest.class_names
        return names[index] if names is not None and 0 <= index < len(names) else str(index)

    def head(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The network's last linear layer, weight [K, D] and bias [K] float32; None where it is not known."""
        if not self.manifest.has_head:
            return None
        where = join(self.uri, HEAD)
        tensors = read_tensors(where, "STORE", self.uri)
        weight, bias = tensors.get("weight"), tensors.get("bias")
        shape = (self.classes, self.dimensions)
        if weight is None or bias is None or weight.shape != shape or bias.shape != shape[:1]:
            raise InputError(
                "STORE", redact(self.uri), f"{HEAD} does not hold weight {shape} and bias", "extract again"
            )
        return weight.astype(np.float32), bias.astype(np.float32)

    def pieces(self, target_bytes: int = 64 << 20) -> list[Piece]:
        """Cut the store into pieces of about ``target_bytes``; the cut depends on the store alone."""
        return list(_cut(self.files, self._row_bytes, target_bytes))

    def class_ranges(self, target_bytes: int = 64 << 20) -> list[list[Piece]]:
        """Cut a clustered store so that no class is in two ranges; each range is the pieces to read for it."""
        if self.manifest.layout != "clustered":
            raise ValueError("only a clustered store can be cut by class")
        ranges: list[list[Piece]] = []
        size = 0
        for piece in _cut(self.files, self._row_bytes, 0):
            same_class = bool(ranges) and ranges[-1][-1].last_label == piece.first_label
            if ranges and (same_class or size < target_bytes):
                ranges[-1].append(piece)
            else:
                ranges.append([piece])
                size = 0
            size += piece.rows * self._row_bytes
        return [list(_join_pieces(pieces)) for pieces in ranges]

    @property
    def _row_bytes(self) -> int:
        return 4 * (self.dimensions + (0 if self.manifest.has_head else self.classes))

    def read(self, piece: Piece, *, keys: bool = False, logits: bool = True) -> Rows:
        """Read a piece into arrays and check its shape and labels; InputError names file and row."""
        where = join(self.uri, "rows", piece.file)
        columns = ["label", "pred", "embedding"]
        if keys:
            columns.append("key")
        if logits and not self.manifest.has_head:
            columns.append("logits")
        try:
            with _parquet(where) as file:
                table = file.read_row_groups(list(piece.groups), columns=columns, use_threads=False)
        except (OSError, pa.ArrowException, KeyError) as error:
            raise self._broken(piece.file, one_line(error)) from None
        rows = Rows(
            label=self._scalars(table, "label", piece.file),
            pred=self._scalars(table, "pred", piece.file),
            embedding=self._vectors(table, "embedding", self.dimensions, piece.file),
            logits=self._vectors(table, "logits", self.classes, piece.file) if "logits" in columns else None,
            key=table.column("key").combine_chunks() if keys else None,
        )
        self._check_labels(rows.label, UNKNOWN, "label", piece)
        self._check_labels(rows.pred, 0, "pred", piece)
        return rows

    def read_labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels and predictions of the whole store in file order, each [N] int32."""
        parts = []
        for file in self.files:
            try:
                with _parquet(join(self.uri, "rows", file.name)) as handle:
                    table = handle.read(columns=["label", "pred"], use_threads=False)
            except (OSError, pa.ArrowException, KeyError) as error:
                raise self._broken(file.name, one_line(error)) from None
            parts.append((self._scalars(table, "label", file.name), self._scalars(table, "pred", file.name)))
        if not parts:
            return np.empty(0, np.int32), np.empty(0, np.int32)
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def refuse_non_finite(self, rows: Rows, piece: Piece) -> None:
        """Name the first row of ``piece`` with a NaN or infinity in it; called when a result looks wrong."""
        bad = np.flatnonzero(~np.isfinite(rows.embedding).all(axis=1))
        if len(bad):
            raise self._broken(piece.file, f"row {self.row_number(piece, bad[0])} holds a NaN or an infinity")

    def row_number(self, piece: Piece, offset: int) -> int:
        """Where in its file the row at ``offset`` of a piece stands, from 0."""
        file = next(f for f in self.files if f.name == piece.file)
        return sum(group.rows for group in file.groups[: piece.groups[0]]) + int(offset)

    def _scalars(self, table: pa.Table, name: str, file: str) -> np.ndarray:
        column = table.column(name)
        if not pa.types.is_integer(column.type) or column.null_count:
            raise self._broken(file, f"column {name} is {column.type} or holds nulls, int32 is needed")
        return column.combine_chunks().to_numpy(zero_copy_only=False).astype(np.int32, copy=False)

    def _vectors(self, table: pa.Table, name: str, size: int, file: str) -> np.ndarray:
        column = table.column(name)
        kind = column.type
        if not pa.types.is_fixed_size_list(kind) or kind.list_size != size or kind.value_type != pa.float32():
            raise self._broken(
                file, f"column {name} is {kind}, float32 lists of {size} are needed (row 0 on)"
            )
        chunks = [_flat(chunk) for chunk in column.chunks]
        flat = (
            chunks[0] if len(chunks) == 1 else np.concatenate(chunks) if chunks else np.empty(0, np.float32)
        )
        return flat.reshape(-1, size)

    def _check_labels(self, values: np.ndarray, lowest: int, name: str, piece: Piece) -> None:
        if len(values) and (values.min() < lowest or values.max() >= self.classes):
            offset = np.flatnonzero((values < lowest) | (values >= self.classes))[0]
            row = self.row_number(piece, offset)
            raise self._broken(
                piece.file, f"row {row} has {name} {values[offset]}, allowed are {lowest}…{self.classes - 1}"
            )

    def _broken(self, file: str, problem: str) -> InputError:
        return InputError("STORE", redact(self.uri), f"rows/{file}: {problem}", "extract the store again")


def _flat(chunk: pa.FixedSizeListArray) -> np.ndarray:
    values = chunk.flatten()
    return values.to_numpy(zero_copy_only=values.null_count == 0)


def _parquet(where: str) -> pq.ParquetFile:
    filesystem, path = resolve(where)
    # pre_buffer costs a copy on local disks and saves round trips on object stores.
    remote = not isinstance(filesystem, fs.LocalFileSystem)
    return pq.ParquetFile(path, filesystem=filesystem, pre_buffer=remote, memory_map=not remote)


def inspect_file(where: str) -> list[RowGroup]:
    """Row counts and label ranges of a Parquet file's row groups, from its footer where it has statistics."""
    groups = []
    with _parquet(where) as file:
        position = file.schema_arrow.get_field_index("label")
        for index in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(index)
            statistics = group.column(position).statistics if position == 1 else None
            if statistics is not None and statistics.has_min_max:
                low, high = statistics.min, statistics.max
            else:
                labels = file.read_row_group(index, columns=["label"]).column("label")
                bounds = pc.min_max(labels).as_py()
                low, high = bounds["min"], bounds["max"]
            groups.append(RowGroup(rows=group.num_rows, first_label=low, last_label=high))
    return groups


def _inspect(uri: str, name: str, field: str) -> RowFile:
    try:
        groups = inspect_file(join(uri, "rows", name))
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise InputError(
            field, redact(uri), f"rows/{name}: {one_line(error)}", "extract the store again"
        ) from None
    return RowFile(name=name, rows=sum(g.rows for g in groups), groups=groups)


def _cut(files: Iterable[RowFile], row_bytes: int, target_bytes: int) -> Iterator[Piece]:
    for file in files:
        start, rows = 0, 0
        for index, group in enumerate(file.groups):
            rows += group.rows
            if rows * row_bytes >= target_bytes or index == len(file.groups) - 1:
                taken = file.groups[start : index + 1]
                yield Piece(
                    file=file.name,
                    groups=tuple(range(start, index + 1)),
                    rows=rows,
                    first_label=min(g.first_label for g in taken),
                    last_label=max(g.last_label for g in taken),
                )
                start, rows = index + 1, 0


def _join_pieces(pieces: list[Piece]) -> Iterator[Piece]:
    current = pieces[0]
    for piece in pieces[1:]:
        if piece.file == current.file:
            current = Piece(
                current.file,
                current.groups + piece.groups,
                current.rows + piece.rows,
                current.first_label,
                piece.last_label,
            )
        else:
            yield current
            current = piece
    yield current


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
    write_bytes(join(folder, HEAD), save_safetensors(tensors))


def read_tensors(where: str, field: str, shown: str) -> dict[str, np.ndarray]:
    """Read a safetensors file; a missing or malformed one is an InputError naming it."""
    name = where.rsplit("/", 1)[-1]
    if kind_of(where) != "file":
        raise InputError(field, redact(shown), f"{name} is missing", "make the folder again")
    try:
        return load_safetensors(read_bytes(where, limit=_MAX_TENSOR_FILE))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            field, redact(shown), f"{name}: {one_line(error)}", "make the folder again"
        ) from None


def write_failures(folder: str, failures: pa.Table) -> None:
    """Write failures.parquet: key, stage, error of every input that could not be embedded."""
    filesystem, path = resolve(join(folder, FAILURES))
    pq.write_table(failures.cast(FAILURES_SCHEMA), path, filesystem=filesystem)


def finish_store(folder: str, manifest: StoreManifest) -> None:
    """Mark a store complete."""
    write_manifest(folder, manifest)
