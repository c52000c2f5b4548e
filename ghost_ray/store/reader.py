"""Reading a store: opening and checking it, cutting it into row groups for tasks, turning row groups into arrays."""

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
from ghost_ray.files.digests import damaged, wrong_digests
from ghost_ray.files.manifest import read_manifest
from ghost_ray.files.storage_errors import cause_of
from ghost_ray.files.tensors import read_tensors
from ghost_ray.rows import Head, Rows
from ghost_ray.store.layout import GROUP_BYTES, HEAD, UNKNOWN, ClassCount, StoreManifest
from ghost_ray.store.row_files import RowReader
from ghost_ray.store.row_groups import (
    INDEX,
    RowFile,
    RowGroups,
    cut,
    cut_by_class,
    group_array,
    holding,
    in_label_order,
    inspect_file,
    read_index,
)
from ghost_ray.store.writer import numbers_of, vectors_of

TASK_BYTES = 64 << 20  # that a task reads


class Store:
    """A complete store, opened for reading.

    >>> store = Store.open("runs/train")  # doctest: +SKIP
    >>> for groups in store.row_groups():  # doctest: +SKIP
    ...     rows = store.read(groups)
    """

    def __init__(self, uri: str, manifest: StoreManifest, files: Sequence[RowFile], field: str = "store") -> None:
        self.uri, self.manifest, self.files, self.field = uri, manifest, files, field

    def __getstate__(self) -> dict[str, Any]:
        """What a task gets: enough to read row groups that the driver chose, and nothing that grows with the store."""
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
            present = [name for name in listed if name.endswith(".arrow")]
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

    def row_groups(self, target_bytes: int = TASK_BYTES) -> list[RowGroups]:
        """Cut the store into row groups of together about ``target_bytes``; the cut depends on the store alone."""
        return list(cut(self.files, self._row_bytes, target_bytes))

    def class_ranges(self, target_bytes: int = TASK_BYTES) -> list[list[RowGroups]]:
        """Cut a clustered store so that no class is in two ranges; each range is the row groups to read for it."""
        if not self.clustered:
            raise ValueError("only a clustered store can be cut by class")
        return cut_by_class(self.files, self._row_bytes, target_bytes)

    def class_row_groups(self, label: int) -> list[RowGroups]:
        """The row groups that may hold rows of one class."""
        return list(holding(self.files, label))

    @property
    def _row_bytes(self) -> int:
        return 4 * (self.dimensions + (0 if self.manifest.has_head else self.classes))

    def read(self, groups: RowGroups) -> Rows:
        """Read row groups into arrays and check their shape and labels; InputError names file and row."""
        return self._joined(list(self.batches(groups)))

    def read_keyed(self, groups: RowGroups) -> tuple[Rows, pa.Array]:
        """Read row groups, and the key of each row."""
        parts = list(self.keyed_batches(groups))
        keys = pa.chunked_array([key for _, key in parts], pa.string()).combine_chunks()
        return self._joined([rows for rows, _ in parts]), keys

    def batches(self, groups: RowGroups, *, logits: bool = True) -> Iterator[Rows]:
        """Read row groups one by one, and a very large one in parts; stored logits may be left out.

        The arrays cannot be written to: they are the file itself where it is on a disk. Using a few megabytes at a time
        needs little memory for any store.
        """
        for rows, _ in self.table_batches(groups, logits=logits):
            yield rows

    def keyed_batches(self, groups: RowGroups) -> Iterator[tuple[Rows, pa.Array]]:
        """Read row groups as `batches` does, and the key of each row."""
        for rows, batch in self.table_batches(groups, "key"):
            yield rows, batch.column("key")

    def table_batches(
        self, groups: RowGroups, *columns: str, logits: bool = True
    ) -> Iterator[tuple[Rows, pa.RecordBatch]]:
        """Read row groups as `batches` does, and beside the arrays the record batch with further ``columns``."""
        wide = ["embedding"] if self.manifest.has_head or not logits else ["embedding", "logits"]
        start = 0
        for batch in self._checked(groups, ["label", "pred", *columns, *wide]):
            vectors = {name: vectors_of(batch.column(name)) for name in wide}
            yield Rows(_integers(batch, "label"), _integers(batch, "pred"), **vectors, start=start), batch
            start += batch.num_rows

    def read_small(self, groups: RowGroups, *columns: str) -> pa.Table:
        """Some narrow columns of row groups (``label``, ``pred``, ``key``, ``group``), checked like all else."""
        return pa.Table.from_batches(self._checked(groups, list(columns)))

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

    def _checked(self, groups: RowGroups, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Row groups as record batches whose rows have been checked; a very large one comes in parts."""
        step = max(1, GROUP_BYTES // self._row_bytes)
        start = 0
        for batch in self._record_batches(groups, columns):
            large = "embedding" in columns and batch.num_rows > 4 * step
            for first in range(0, batch.num_rows, step) if large else [0]:
                part = batch.slice(first, step) if large else batch
                self._check_rows(part, groups, start)
                yield part
                start += part.num_rows

    def _record_batches(self, groups: RowGroups, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The row groups as the file has them; their columns are of the right types and lengths."""
        try:
            with RowReader(join(self.uri, "rows", groups.file), columns) as file:
                for name in columns:
                    self._check_type(groups.file, name, file.schema.field(name).type)
                for number, group in zip(groups.numbers, groups.members, strict=True):
                    batch = file.batch(number)
                    if batch.num_rows != group.rows:
                        found = f"row group {number} holds {batch.num_rows} rows where the manifest says {group.rows}"
                        raise self.broken(groups.file, found)
                    yield batch
        except (OSError, pa.ArrowException, LookupError, ValueError) as error:
            raise self._unreadable(groups.file, error) from None

    def refuse_non_finite(self, rows: Rows, groups: RowGroups) -> None:
        """Name the first row of ``rows`` with a NaN or infinity in it; called when a result looks wrong."""
        bad = np.flatnonzero(~np.isfinite(rows.embedding).all(axis=1))
        if len(bad):
            row = self.row_number(groups, rows.start + bad[0])
            raise self.broken(groups.file, f"row {row} holds a NaN or an infinity")

    def refuse_unused_non_finite(self, rows: Rows, used: np.ndarray, groups: RowGroups) -> None:
        """Name a NaN in a row that no result uses: a misclassified one, perhaps because of the NaN."""
        if not np.isfinite(rows.embedding[~used]).all():
            self.refuse_non_finite(rows, groups)

    def row_number(self, groups: RowGroups, offset: int) -> int:
        """The position in its file, from 0, of the row at ``offset`` of row groups."""
        return groups.start + int(offset)

    def broken(self, file: str, problem: str) -> InputError:
        """What to raise about a file of this store."""
        return InputError(self.field, redact(self.uri), f"rows/{file}: {problem}", "extract the store again")

    def _unreadable(self, file: str, error: Exception) -> GhostRayError:
        """An unreachable store is not a broken one."""
        if isinstance(error, OSError) and cause_of(error) not in (None, "absent"):
            return explained(error, self.field, self.uri)
        return self.broken(file, one_line(error).strip("'\""))

    def _check_type(self, file: str, name: str, kind: pa.DataType) -> None:
        width = {"embedding": self.dimensions, "logits": self.classes}.get(name)
        if width is not None:
            fits = pa.types.is_fixed_size_list(kind) and (kind.list_size, kind.value_type) == (width, pa.float32())
            expected = f"float32 lists of {width}"
        else:
            text = name in ("key", "group")
            fits = kind == pa.string() if text else pa.types.is_integer(kind)
            expected = "string" if text else "int32"
        if not fits:
            raise self.broken(file, f"column {name} is {one_line(kind)}, expected {expected}")

    def _check_rows(self, batch: pa.RecordBatch, groups: RowGroups, start: int) -> None:
        """Refuse gaps, and labels and predictions that are not classes or not those that the manifest gives."""
        for name in batch.schema.names:
            column = batch.column(name)
            if name != "group" and column.null_count:
                row = self.row_number(groups, start + pc.index(pc.is_null(column), True).as_py())
                raise self.broken(groups.file, f"row {row} has no {name}")
        if "label" in batch.schema.names:
            self._check_classes(batch, "label", UNKNOWN, self.classes - 1, "allowed:", groups, start)
            first, last = groups.first_label, groups.last_label
            self._check_classes(batch, "label", first, last, "the manifest says", groups, start)
        if "pred" in batch.schema.names:
            self._check_classes(batch, "pred", 0, self.classes - 1, "allowed:", groups, start)

    def _check_classes(
        self,
        batch: pa.RecordBatch,
        name: str,
        lowest: int,
        highest: int,
        allowed: str,
        groups: RowGroups,
        start: int,
    ) -> None:
        values = numbers_of(batch.column(name))
        if len(values) and (values.min() < lowest or values.max() > highest):
            offset = np.flatnonzero((values < lowest) | (values > highest))[0]
            row = self.row_number(groups, start + offset)
            raise self.broken(groups.file, f"row {row} has {name} {values[offset]}, {allowed} {lowest}…{highest}")


def _integers(batch: pa.RecordBatch, name: str) -> np.ndarray:
    return np.asarray(numbers_of(batch.column(name)), np.int32)


def _stack(parts: list[np.ndarray], kind: type, width: int | None = None) -> np.ndarray:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty((0,) if width is None else (0, width), kind)


def _inspect(uri: str, name: str, field: str) -> RowFile:
    try:
        return RowFile(name, group_array(inspect_file(join(uri, "rows", name))))
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError, OverflowError) as error:
        raise InputError(field, redact(uri), f"rows/{name}: {one_line(error)}", "extract the store again") from None
