"""Reading a store: opening and checking it, cutting it into pieces for tasks, turning pieces into arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from ghost_ray.errors import InputError, one_line
from ghost_ray.files import join, redact, resolve
from ghost_ray.manifest import read_manifest
from ghost_ray.store.layout import HEAD, UNKNOWN, RowFile, RowGroup, StoreManifest
from ghost_ray.tensors import read_tensors


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
        return np.equal(self.label, self.pred)


@dataclass(frozen=True)
class Piece:
    """Consecutive row groups of one file: the unit a task reads."""

    file: str
    groups: tuple[int, ...]
    rows: int
    first_label: int
    last_label: int


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
                    raise InputError(field, redact(uri), f"rows/{file.name} is missing", "extract the store again")
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
            raise self._broken(file, f"column {name} is {kind}, float32 lists of {size} are needed (row 0 on)")
        chunks = [_flat(chunk) for chunk in column.chunks]
        flat = chunks[0] if len(chunks) == 1 else np.concatenate(chunks) if chunks else np.empty(0, np.float32)
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
        raise InputError(field, redact(uri), f"rows/{name}: {one_line(error)}", "extract the store again") from None
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
