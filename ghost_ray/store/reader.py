"""Reading a store: opening and checking it, splitting it into pieces for tasks, turning pieces into arrays."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ghost_ray.errors import Damaged, GhostRayError, InputError, one_line, redact
from ghost_ray.files import MANIFEST, explained, join, names_in, reaching, read_bytes, resolve
from ghost_ray.files.causes import cause_of
from ghost_ray.files.digests import damaged, wrong_digests
from ghost_ray.files.manifest import read_manifest
from ghost_ray.files.tensors import read_tensors
from ghost_ray.rows import Head, Rows
from ghost_ray.store.layout import GROUP_BYTES, HEAD, ClassCount, StoreManifest
from ghost_ray.store.pages import read_vectors
from ghost_ray.store.pieces import Piece, cut, cut_by_class, holding, in_label_order, inspect_file, open_parquet
from ghost_ray.store.row_index import INDEX, UNKNOWN, RowFile, read_index, row_groups

PIECE_BYTES = 64 << 20


class Store:
    """A complete store, opened for reading.

    >>> store = Store.open("runs/train")  # doctest: +SKIP
    >>> for piece in store.pieces():  # doctest: +SKIP
    ...     rows = store.read(piece)
    """

    def __init__(self, uri: str, manifest: StoreManifest, files: Sequence[RowFile], field: str = "store") -> None:
        self.uri, self.manifest, self.files, self.field = uri, manifest, files, field

    def __getstate__(self) -> dict[str, Any]:
        """What a task gets: enough to read pieces that the driver has cut, and nothing that grows with the store."""
        digests = {name: digest for name, digest in (self.manifest.digests or {}).items() if name == HEAD}
        long: dict[str, Any] = {"files": None, "class_names": None, "config": {}, "notes": [], "digests": digests}
        return self.__dict__ | {"manifest": self.manifest.model_copy(update=long), "files": None}

    @classmethod
    def open(cls, uri: str, field: str = "store", *, verify: bool = False) -> Store:
        """Open and check a store: manifest readable, every row file there in the size it was written in.

        With ``verify``, every byte of it is read and compared as well.
        """
        manifest = read_manifest(uri, StoreManifest, field, "ghost-ray extract … --out STORE")
        with reaching(uri, field):
            listed = names_in(join(uri, "rows")) if manifest.digests is None else manifest.row_names()
            present = [name for name in listed if name.endswith(".parquet")]
            if manifest.files is None:
                files = [_inspect(uri, name, field) for name in present]
            else:
                written = (manifest.digests or {}).get(INDEX)
                files = read_index(uri, manifest.files, manifest.network.classes, field, written)
        names = [file.name for file in files]
        if missing := sorted(set(names) - set(present)):
            raise Damaged(field, redact(uri), f"rows/{missing[0]} is missing", "extract the store again")
        if len(set(names)) != len(names):
            raise InputError(field, redact(uri), "its manifest names a file twice", "extract the store again")
        counted = sum(file.rows for file in files)
        if counted != manifest.rows:
            raise InputError(
                field,
                redact(uri),
                f"its files hold {counted} rows, the manifest says {manifest.rows}",
                "extract again",
            )
        if verify:
            with reaching(uri, field):
                damages = wrong_digests(uri, manifest.digests or {})
            if damages:
                raise damaged(field, uri, damages, "extract the store again")
        return cls(uri, manifest, files, field)

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
        """Whether the rows of a class are contiguous, according to the manifest and the row groups."""
        return self.manifest.layout == "clustered" and in_label_order(self.files)

    def fingerprint(self) -> str:
        """SHA-256 of the manifest, of the index and of the row files' names and sizes."""
        digest = hashlib.sha256(read_bytes(join(self.uri, MANIFEST)))
        for file in self.files:
            digest.update(file.groups.tobytes())
        filesystem, path = resolve(join(self.uri, "rows"))
        listing = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        for name, size in sorted((info.base_name, info.size) for info in listing):
            digest.update(f"{name}\0{size}\0".encode())
        return digest.hexdigest()

    def class_name(self, index: int) -> str:
        names = self.manifest.class_names
        return names[index] if names is not None and 0 <= index < len(names) else str(index)

    def class_count(self, index: int, n: int) -> ClassCount:
        """A class and how many rows it has, as results name it."""
        return {"class": int(index), "name": self.class_name(int(index)), "n": int(n)}

    def head(self) -> Head | None:
        """The network's last linear layer; None if it is not known."""
        if not self.manifest.has_head:
            return None
        where = join(self.uri, HEAD)
        tensors = read_tensors(where, self.field, self.uri, (self.manifest.digests or {}).get(HEAD))
        weight, bias = tensors.get("weight"), tensors.get("bias")
        shape = (self.classes, self.dimensions)
        if weight is None or bias is None or weight.shape != shape or bias.shape != shape[:1]:
            raise InputError(
                self.field, redact(self.uri), f"{HEAD} does not hold weight {shape} and bias", "extract again"
            )
        return Head(weight.astype(np.float32), bias.astype(np.float32))

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
        return list(holding(self.files, label))

    @property
    def _row_bytes(self) -> int:
        return 4 * (self.dimensions + (0 if self.manifest.has_head else self.classes))

    def read(self, piece: Piece) -> Rows:
        """Read a piece into arrays and check its shape and labels; InputError names file and row."""
        return self._joined(list(self.batches(piece)))

    def read_keyed(self, piece: Piece) -> tuple[Rows, pa.Array]:
        """Read a piece, and the key of each row."""
        parts = list(self.keyed_batches(piece))
        keys = pa.chunked_array([key for _, key in parts], pa.string()).combine_chunks()
        return self._joined([rows for rows, _ in parts]), keys

    def batches(self, piece: Piece, *, logits: bool = True) -> Iterator[Rows]:
        """Read a piece row group by row group, and a very large row group in parts; stored logits may be left out.

        Reading a few megabytes at a time lets the allocator reuse memory that is in the cache; it is 1.5 times as fast
        as reading the same rows at once, and needs little memory for any store.
        """
        for rows, _ in self._batches(piece, ["label", "pred"], logits=logits):
            yield rows

    def keyed_batches(self, piece: Piece) -> Iterator[tuple[Rows, pa.Array]]:
        """Read a piece as `batches` does, and the key of each row."""
        for rows, table in self._batches(piece, ["label", "pred", "key"], logits=True):
            yield rows, table.column("key").combine_chunks()

    def _batches(self, piece: Piece, narrow: list[str], *, logits: bool) -> Iterator[tuple[Rows, pa.Table]]:
        """Parts of a piece as arrays, and their narrow columns as they were read."""
        wide = {"embedding": self.dimensions}
        if logits and not self.manifest.has_head:
            wide["logits"] = self.classes
        start = 0
        for table, vectors in self._parts(piece, narrow, wide):
            self._check_small(table, piece, start)
            for name in set(wide) - set(vectors):
                vectors[name] = self._vectors(table, name, wide[name], piece, start)
            rows = Rows(
                label=_integers(table, "label"),
                pred=_integers(table, "pred"),
                embedding=vectors["embedding"],
                logits=vectors.get("logits"),
                start=start,
            )
            yield rows, table
            start += table.num_rows
        if start != piece.rows:
            raise self.broken(piece.file, f"holds {start} rows where the manifest says {piece.rows}")

    def _joined(self, parts: list[Rows]) -> Rows:
        if len(parts) == 1:
            return parts[0]
        stored = None if self.manifest.has_head else [part.logits for part in parts]
        return Rows(
            label=_stack([part.label for part in parts], np.int32),
            pred=_stack([part.pred for part in parts], np.int32),
            embedding=_stack([part.embedding for part in parts], np.float32, self.dimensions),
            logits=None if stored is None else _stack(stored, np.float32, self.classes),
        )

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
        columns = [*narrow, *wide]
        try:
            with open_parquet(join(self.uri, "rows", piece.file)) as (file, source):
                names = file.schema_arrow.names
                for column in columns:
                    if names.count(column) != 1:
                        raise KeyError(f"has {'two columns' if column in names else 'no column'} {column}")
                for index, group in zip(piece.groups, piece.parts, strict=True):
                    if wide and group.rows * self._row_bytes > 4 * GROUP_BYTES:
                        step = max(1, GROUP_BYTES // self._row_bytes)
                        for batch in file.iter_batches(step, row_groups=[index], columns=columns, use_threads=False):
                            yield pa.Table.from_batches([batch]), {}
                        continue
                    read = {name: read_vectors(source, file, index, name, wide[name]) for name in wide}
                    vectors = {name: values for name, values in read.items() if values is not None}
                    rest = [name for name in columns if name not in vectors]
                    yield file.read_row_group(index, columns=rest, use_threads=False), vectors
        except (OSError, pa.ArrowException, LookupError, UnicodeDecodeError) as error:
            raise self._unreadable(piece.file, error) from None

    def refuse_non_finite(self, rows: Rows, piece: Piece) -> None:
        """Name the first row of ``rows`` with a NaN or infinity in it; called when a result looks wrong."""
        bad = np.flatnonzero(~np.isfinite(rows.embedding).all(axis=1))
        if len(bad):
            row = self.row_number(piece, rows.start + bad[0])
            raise self.broken(piece.file, f"row {row} holds a NaN or an infinity")

    def refuse_unused_non_finite(self, rows: Rows, used: np.ndarray, piece: Piece) -> None:
        """Name a NaN in a row that no result uses: a misclassified one, perhaps because of the NaN."""
        if not np.isfinite(rows.embedding[~used]).all():
            self.refuse_non_finite(rows, piece)

    def row_number(self, piece: Piece, offset: int) -> int:
        """The position in its file, from 0, of the row at ``offset`` of a piece."""
        return piece.start + int(offset)

    def broken(self, file: str, problem: str) -> InputError:
        """What to raise about a file of this store."""
        return InputError(self.field, redact(self.uri), f"rows/{file}: {problem}", "extract the store again")

    def _unreadable(self, file: str, error: Exception) -> GhostRayError:
        """An unreachable store is not a broken one."""
        if isinstance(error, OSError) and cause_of(error) not in (None, "absent"):
            return explained(error, self.field, self.uri)
        return self.broken(file, one_line(error).strip("'\""))

    def _vectors(self, table: pa.Table, name: str, size: int, piece: Piece, start: int) -> np.ndarray:
        column = table.column(name)
        kind = column.type
        if not pa.types.is_fixed_size_list(kind) or kind.list_size != size or kind.value_type != pa.float32():
            row = self.row_number(piece, start)
            raise self.broken(piece.file, f"row {row} on: column {name} is {kind}, expected float32 lists of {size}")
        self._refuse_nulls(column, name, piece, start)
        return _stack([_flat(chunk) for chunk in column.chunks], np.float32).reshape(-1, size)

    def _check_small(self, table: pa.Table, piece: Piece, start: int) -> None:
        """Refuse labels and predictions that are not classes, or not those that the manifest gives for this piece."""
        for name in {"label", "pred", "key"}.intersection(table.column_names):
            self._refuse_nulls(table.column(name), name, piece, start)
        if "key" in table.column_names and table.column("key").type != pa.string():
            raise self.broken(piece.file, f"column key is {table.column('key').type}, expected string")
        if "label" in table.column_names:
            self._check_classes(table, "label", UNKNOWN, self.classes - 1, "allowed:", piece, start)
            self._check_classes(table, "label", piece.first_label, piece.last_label, "the manifest says", piece, start)
        if "pred" in table.column_names:
            self._check_classes(table, "pred", 0, self.classes - 1, "allowed:", piece, start)

    def _check_classes(
        self, table: pa.Table, name: str, lowest: int, highest: int, allowed: str, piece: Piece, start: int
    ) -> None:
        if not pa.types.is_integer(table.column(name).type):
            raise self.broken(piece.file, f"column {name} is {table.column(name).type}, expected int32")
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
    return np.asarray(table.column(name).to_numpy(), np.int32)


def _flat(chunk: pa.FixedSizeListArray) -> np.ndarray:
    values = chunk.flatten()
    return np.asarray(values.to_numpy(zero_copy_only=values.null_count == 0))


def _stack(parts: list[np.ndarray], kind: type, width: int | None = None) -> np.ndarray:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty((0,) if width is None else (0, width), kind)


def _inspect(uri: str, name: str, field: str) -> RowFile:
    try:
        return RowFile(name, row_groups(inspect_file(join(uri, "rows", name))))
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError, OverflowError) as error:
        raise InputError(field, redact(uri), f"rows/{name}: {one_line(error)}", "extract the store again") from None
