"""Reading a store: opening and checking it, cutting it into pieces for tasks, turning pieces into arrays."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ghost_ray.errors import InputError, one_line
from ghost_ray.files import MANIFEST, join, read_bytes, redact, resolve
from ghost_ray.manifest import read_manifest
from ghost_ray.store.layout import GROUP_BYTES, HEAD, UNKNOWN, RowFile, StoreManifest
from ghost_ray.store.pages import read_vectors
from ghost_ray.store.pieces import Piece, cut, cut_by_class, in_label_order, inspect_file, open_parquet
from ghost_ray.tensors import read_tensors

PIECE_BYTES = 64 << 20


@dataclass(frozen=True)
class Rows:
    """Rows of a store as arrays: label [n] int32, pred [n] int32, embedding [n, D] float32, logits [n, K] or None.

    ``start`` is where in its piece the first of them stands.
    """

    label: np.ndarray
    pred: np.ndarray
    embedding: np.ndarray
    logits: np.ndarray | None = None
    key: pa.Array | None = None
    start: int = 0

    def __len__(self) -> int:
        return len(self.label)

    @property
    def correct(self) -> np.ndarray:
        """Which rows the network classified correctly, [n] bool."""
        return np.equal(self.label, self.pred)


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
            if len({file.name for file in files}) != len(files):
                raise InputError(field, redact(uri), "its manifest names a file twice", "extract the store again")
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

    @functools.cached_property
    def clustered(self) -> bool:
        """Whether the rows of a class lie together, by what the manifest says and the row groups confirm."""
        return self.manifest.layout == "clustered" and in_label_order(self.files)

    def fingerprint(self) -> str:
        """SHA-256 of the manifest and of the row files' names and sizes."""
        digest = hashlib.sha256(read_bytes(join(self.uri, MANIFEST)))
        filesystem, path = resolve(join(self.uri, "rows"))
        listing = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        for name, size in sorted((info.base_name, info.size) for info in listing):
            digest.update(f"{name}\0{size}\0".encode())
        return digest.hexdigest()

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

    def pieces(self, target_bytes: int = PIECE_BYTES) -> list[Piece]:
        """Cut the store into pieces of about ``target_bytes``; the cut depends on the store alone."""
        return list(cut(self.files, self._row_bytes, target_bytes))

    def class_ranges(self, target_bytes: int = PIECE_BYTES) -> list[list[Piece]]:
        """Cut a clustered store so that no class is in two ranges; each range is the pieces to read for it."""
        if not self.clustered:
            raise ValueError("only a clustered store can be cut by class")
        return cut_by_class(self.files, self._row_bytes, target_bytes)

    def class_pieces(self, label: int) -> list[Piece]:
        """The row groups that may hold rows of one class."""
        return [p for p in cut(self.files, self._row_bytes, 0) if p.first_label <= label <= p.last_label]

    @property
    def _row_bytes(self) -> int:
        return 4 * (self.dimensions + (0 if self.manifest.has_head else self.classes))

    def read(self, piece: Piece, *, keys: bool = False, logits: bool = True) -> Rows:
        """Read a piece into arrays and check its shape and labels; InputError names file and row."""
        parts = list(self.batches(piece, keys=keys, logits=logits))
        if len(parts) == 1:
            return parts[0]
        found = [p.logits for p in parts if p.logits is not None]
        return Rows(
            label=_stack([p.label for p in parts], np.int32),
            pred=_stack([p.pred for p in parts], np.int32),
            embedding=_stack([p.embedding for p in parts], np.float32, self.dimensions),
            logits=_stack(found, np.float32, self.classes) if logits and not self.manifest.has_head else None,
            key=pa.chunked_array([p.key for p in parts], pa.string()).combine_chunks() if keys else None,
        )

    def batches(self, piece: Piece, *, keys: bool = False, logits: bool = True) -> Iterator[Rows]:
        """Read a piece row group by row group, and a very large row group in parts.

        Reading a few megabytes at a time lets the allocator reuse memory that is in the cache; it is half as fast
        again as reading the same rows in one go, and takes little memory whatever wrote the store.
        """
        narrow = ["label", "pred", "key"] if keys else ["label", "pred"]
        wide = {"embedding": self.dimensions}
        if logits and not self.manifest.has_head:
            wide["logits"] = self.classes
        start = 0
        for table, vectors in self._parts(piece, narrow, wide):
            self._check_small(table, piece, start)
            for name in set(wide) - set(vectors):
                vectors[name] = self._vectors(table, name, wide[name], piece, start)
            yield Rows(
                label=_integers(table, "label"),
                pred=_integers(table, "pred"),
                embedding=vectors["embedding"],
                logits=vectors.get("logits"),
                key=table.column("key").combine_chunks() if keys else None,
                start=start,
            )
            start += table.num_rows
        if start != piece.rows:
            raise self.broken(piece.file, f"holds {start} rows where the manifest says {piece.rows}")

    def read_small(self, piece: Piece, *columns: str) -> pa.Table:
        """Some narrow columns of a piece (``label``, ``pred``, ``key``), checked like all else."""
        tables = []
        start = 0
        for table, _ in self._parts(piece, list(columns), {}):
            self._check_small(table, piece, start)
            start += table.num_rows
            tables.append(table)
        return pa.concat_tables(tables)

    def _parts(
        self, piece: Piece, narrow: list[str], wide: dict[str, int]
    ) -> Iterator[tuple[pa.Table, dict[str, np.ndarray]]]:
        """The columns of a piece, part by part: a table, and apart from it those vectors that need no decoding."""
        groups = self._file(piece.file).groups
        columns = [*narrow, *wide]
        try:
            with open_parquet(join(self.uri, "rows", piece.file)) as (file, source):
                names = file.schema_arrow.names
                for column in columns:
                    if names.count(column) != 1:
                        raise KeyError(f"has {'two columns' if column in names else 'no column'} {column}")
                for index in piece.groups:
                    if wide and groups[index].rows * self._row_bytes > 4 * GROUP_BYTES:
                        step = max(1, GROUP_BYTES // self._row_bytes)
                        for batch in file.iter_batches(step, row_groups=[index], columns=columns, use_threads=False):
                            yield pa.Table.from_batches([batch]), {}
                        continue
                    read = {name: read_vectors(source, file, index, name, wide[name]) for name in wide}
                    vectors = {name: values for name, values in read.items() if values is not None}
                    rest = [name for name in columns if name not in vectors]
                    yield file.read_row_group(index, columns=rest, use_threads=False), vectors
        except (OSError, pa.ArrowException, LookupError, UnicodeDecodeError) as error:
            raise self.broken(piece.file, one_line(error).strip("'\"")) from None

    def read_labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels and predictions of the whole store in file order, each [N] int32."""
        tables = [self.read_small(piece, "label", "pred") for piece in self.pieces(1 << 62)]
        return (
            _stack([_integers(table, "label") for table in tables], np.int32),
            _stack([_integers(table, "pred") for table in tables], np.int32),
        )

    def refuse_non_finite(self, rows: Rows, piece: Piece) -> None:
        """Name the first row of ``rows`` with a NaN or infinity in it; called when a result looks wrong."""
        bad = np.flatnonzero(~np.isfinite(rows.embedding).all(axis=1))
        if len(bad):
            row = self.row_number(piece, rows.start + bad[0])
            raise self.broken(piece.file, f"row {row} holds a NaN or an infinity")

    def refuse_unused_non_finite(self, rows: Rows, used: np.ndarray, piece: Piece) -> None:
        """Name a NaN where it hides in a row that no result rests on: one misclassified, perhaps because of it."""
        if not np.isfinite(rows.embedding[~used]).all():
            self.refuse_non_finite(rows, piece)

    def row_number(self, piece: Piece, offset: int) -> int:
        """Where in its file the row at ``offset`` of a piece stands, from 0."""
        return sum(group.rows for group in self._file(piece.file).groups[: piece.groups[0]]) + int(offset)

    def broken(self, file: str, problem: str) -> InputError:
        """What to raise about a file of this store."""
        return InputError("STORE", redact(self.uri), f"rows/{file}: {problem}", "extract the store again")

    def _file(self, name: str) -> RowFile:
        return next(file for file in self.files if file.name == name)

    def _vectors(self, table: pa.Table, name: str, size: int, piece: Piece, start: int) -> np.ndarray:
        column = table.column(name)
        kind = column.type
        if not pa.types.is_fixed_size_list(kind) or kind.list_size != size or kind.value_type != pa.float32():
            row = self.row_number(piece, start)
            raise self.broken(piece.file, f"row {row} on: column {name} is {kind}, float32 lists of {size} are needed")
        self._refuse_nulls(column, name, piece, start)
        return _stack([_flat(chunk) for chunk in column.chunks], np.float32).reshape(-1, size)

    def _check_small(self, table: pa.Table, piece: Piece, start: int) -> None:
        """Refuse labels and predictions that are no classes, or not the ones promised for this piece."""
        for name in {"label", "pred", "key"}.intersection(table.column_names):
            self._refuse_nulls(table.column(name), name, piece, start)
        if "key" in table.column_names and table.column("key").type != pa.string():
            raise self.broken(piece.file, f"column key is {table.column('key').type}, string is needed")
        if "label" in table.column_names:
            self._check_classes(table, "label", UNKNOWN, self.classes - 1, "allowed are", piece, start)
            self._check_classes(
                table, "label", piece.first_label, piece.last_label, "the manifest has here", piece, start
            )
        if "pred" in table.column_names:
            self._check_classes(table, "pred", 0, self.classes - 1, "allowed are", piece, start)

    def _check_classes(
        self, table: pa.Table, name: str, lowest: int, highest: int, allowed: str, piece: Piece, start: int
    ) -> None:
        if not pa.types.is_integer(table.column(name).type):
            raise self.broken(piece.file, f"column {name} is {table.column(name).type}, int32 is needed")
        values = table.column(name).to_numpy()
        if len(values) and (values.min() < lowest or values.max() > highest):
            offset = np.flatnonzero((values < lowest) | (values > highest))[0]
            row = self.row_number(piece, start + offset)
            raise self.broken(piece.file, f"row {row} has {name} {values[offset]}, {allowed} {lowest}…{highest}")

    def _refuse_nulls(self, column: pa.ChunkedArray, name: str, piece: Piece, start: int) -> None:
        if column.null_count:
            offset = pc.index(pc.is_null(column), True).as_py()
            raise self.broken(piece.file, f"row {self.row_number(piece, start + offset)} has no {name}")


def _integers(table: pa.Table, name: str) -> np.ndarray:
    return table.column(name).to_numpy().astype(np.int32, copy=False)


def _flat(chunk: pa.FixedSizeListArray) -> np.ndarray:
    values = chunk.flatten()
    return values.to_numpy(zero_copy_only=values.null_count == 0)


def _stack(parts: list[np.ndarray], kind: type, width: int | None = None) -> np.ndarray:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty((0,) if width is None else (0, width), kind)


def _inspect(uri: str, name: str, field: str) -> RowFile:
    try:
        groups = inspect_file(join(uri, "rows", name))
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise InputError(field, redact(uri), f"rows/{name}: {one_line(error)}", "extract the store again") from None
    return RowFile(name=name, rows=sum(g.rows for g in groups), groups=groups)
