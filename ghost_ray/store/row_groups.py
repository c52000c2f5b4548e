"""The row groups of a store: its index of them, and cutting a store into what one task reads.

The index has the rows of each row group and which labels, as arrays in a file of its own: a store of a billion rows has
half a million row groups, as text in the manifest more than a reader accepts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ghost_ray.errors import InputError, redact
from ghost_ray.files import join
from ghost_ray.files.digests import Digest
from ghost_ray.files.tensors import read_tensors, write_tensors
from ghost_ray.store.layout import UNKNOWN
from ghost_ray.store.row_files import RowReader

INDEX = "row_groups.safetensors"


class RowGroup(NamedTuple):
    """One row group: how many rows, and the smallest and largest label in it."""

    rows: int
    first_label: int
    last_label: int


_GROUP = np.dtype([("rows", np.int64), ("first_label", np.int32), ("last_label", np.int32)])
_ARRAYS = {"file": np.dtype(np.int32)} | {name: _GROUP[name] for name in RowGroup._fields}


def group_array(groups: Iterable[tuple[int, int, int]] = ()) -> np.recarray:
    """Row groups as a record array [G] with the fields of `RowGroup`."""
    return np.array(list(groups), _GROUP).view(np.recarray)


@dataclass(frozen=True, eq=False)
class RowFile:
    """One file below ``rows/`` and its row groups, a record array [G] with the fields of `RowGroup`."""

    name: str
    groups: np.recarray = field(default_factory=group_array)
    digest: Digest | None = None  # computed by the writer; kept in the manifest with those of the other files

    @property
    def rows(self) -> int:
        return int(self.groups.rows.sum())


@dataclass(frozen=True)
class RowGroups:
    """Consecutive row groups of one file: the unit a task reads, with all that it needs to know of the index."""

    file: str
    start: int  # position in the file of the first row
    first_group: int
    members: tuple[RowGroup, ...]

    @property
    def numbers(self) -> range:
        """The numbers of the row groups in the file."""
        return range(self.first_group, self.first_group + len(self.members))

    @property
    def rows(self) -> int:
        return sum(member.rows for member in self.members)

    @property
    def first_label(self) -> int:
        return min(member.first_label for member in self.members)

    @property
    def last_label(self) -> int:
        return max(member.last_label for member in self.members)

    def split(self) -> list[RowGroups]:
        """The row groups, each by itself."""
        starts = np.cumsum([self.start, *(member.rows for member in self.members)]).tolist()
        return [
            RowGroups(self.file, start, number, (member,))
            for number, member, start in zip(self.numbers, self.members, starts, strict=False)
        ]


def cut(files: Iterable[RowFile], row_bytes: int, target_bytes: int) -> Iterator[RowGroups]:
    """Row groups of together about ``target_bytes``, in the files' order; 0 gives each row group by itself."""
    for file in files:
        start, first, rows = 0, 0, 0
        taken: list[RowGroup] = []
        for index, values in enumerate(file.groups.tolist()):
            taken.append(RowGroup(*values))
            rows += taken[-1].rows
            if rows * row_bytes >= target_bytes or index == len(file.groups) - 1:
                yield RowGroups(file.name, start, first, tuple(taken))
                start, first, rows = start + rows, index + 1, 0
                taken = []


def cut_by_class(files: Iterable[RowFile], row_bytes: int, target_bytes: int) -> list[list[RowGroups]]:
    """Ranges of about ``target_bytes``, no class in two of them; the row groups are in label order."""
    ranges: list[list[RowGroups]] = []
    size = 0
    for group in cut(files, row_bytes, 0):
        same_class = bool(ranges) and ranges[-1][-1].last_label == group.first_label
        if ranges and (same_class or size < target_bytes):
            ranges[-1].append(group)
        else:
            ranges.append([group])
            size = 0
        size += group.rows * row_bytes
    return [
        [joined(list(of_file)) for _, of_file in groupby(groups, key=lambda group: group.file)] for groups in ranges
    ]


def holding(files: Iterable[RowFile], label: int) -> Iterator[RowGroups]:
    """The row groups that may hold rows of a class, each by itself."""
    for file in files:
        groups = file.groups
        for at in np.flatnonzero((groups.first_label <= label) & (label <= groups.last_label)).tolist():
            yield RowGroups(file.name, int(groups.rows[:at].sum()), at, (RowGroup(*groups[at].tolist()),))


def in_label_order(files: Iterable[RowFile]) -> bool:
    """Whether the labels never fall from one row group to the next."""
    last = UNKNOWN
    for file in files:
        groups = file.groups
        if len(groups):
            if groups.first_label[0] < last or (groups.last_label[:-1] > groups.first_label[1:]).any():
                return False
            last = groups.last_label[-1]
    return True


def joined(parts: Sequence[RowGroups]) -> RowGroups:
    """Consecutive row groups of one file together."""
    first = parts[0]
    return RowGroups(first.file, first.start, first.first_group, tuple(m for part in parts for m in part.members))


def inspect_file(where: str) -> list[RowGroup]:
    """Rows and label ranges of a file's record batches, from its column of labels."""
    groups = []
    with RowReader(where, ["label"]) as file:
        kind = file.schema.field("label").type
        if not pa.types.is_integer(kind):
            raise TypeError(f"column label is {kind}, expected int32")
        for number in range(len(file)):
            labels = file.batch(number).column("label")
            bounds = pc.min_max(labels).as_py() if len(labels) else {"min": 0, "max": 0}
            if bounds["min"] is None:
                raise ValueError(f"record batch {number} has no labels")
            groups.append(RowGroup(len(labels), bounds["min"], bounds["max"]))
    return groups


def write_index(folder: str, files: Sequence[RowFile]) -> Digest:
    """Write the row groups of a store's files; the number in ``file`` is the place in the manifest's list of names."""
    groups = np.concatenate([group_array(), *(file.groups for file in files)])
    numbers = np.repeat(np.arange(len(files), dtype=np.int32), [len(file.groups) for file in files])
    arrays = {name: np.ascontiguousarray(groups[name]) for name in RowGroup._fields}
    return write_tensors(join(folder, INDEX), {"file": numbers, **arrays})


def read_index(uri: str, names: Sequence[str], classes: int, field: str, written: Digest | None) -> list[RowFile]:
    """The files of a store with their row groups; what cannot be true is an InputError."""
    arrays = read_tensors(join(uri, INDEX), field, uri, written)
    problem = _problem(arrays, len(names), classes)
    if problem:
        raise InputError(field, redact(uri), f"{INDEX}: {problem}", "extract the store again")
    groups = np.empty(len(arrays["file"]), _GROUP).view(np.recarray)
    for name in RowGroup._fields:
        groups[name] = arrays[name]
    ends = np.searchsorted(arrays["file"], np.arange(len(names) + 1))
    return [RowFile(name, groups[ends[at] : ends[at + 1]].view(np.recarray)) for at, name in enumerate(names)]


def _problem(arrays: dict[str, np.ndarray], files: int, classes: int) -> str | None:
    for name, kind in _ARRAYS.items():
        if name not in arrays or arrays[name].ndim != 1 or arrays[name].dtype != kind:
            return f"does not hold {name} as a list of {kind}"
    if len({len(arrays[name]) for name in _ARRAYS}) > 1:
        return "its arrays are of different lengths"
    file, rows, first, last = (arrays[name] for name in _ARRAYS)
    if len(file) and (file[0] < 0 or file[-1] >= files or (np.diff(file) < 0).any()):
        return f"its files are not numbered in order from 0 to {files - 1}"
    if (rows < 0).any() or rows.astype(np.float64).sum() > 2**62:
        return "holds numbers of rows that cannot be"
    if (first < UNKNOWN).any() or (last >= classes).any() or ((first > last) & (rows > 0)).any():
        return f"holds labels outside {UNKNOWN}…{classes - 1}, or a first label behind the last"
    return None
