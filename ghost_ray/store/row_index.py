"""The index of a store: how many rows each row group has and which labels, as arrays in a file of their own.

A store of a billion rows has half a million row groups: as text in the manifest, more than a reader accepts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ghost_ray.errors import InputError, redact
from ghost_ray.files import join
from ghost_ray.files.digests import Digest
from ghost_ray.files.tensors import read_tensors, write_tensors

INDEX = "row_groups.safetensors"
UNKNOWN = -1


class RowGroup(NamedTuple):
    """One row group: how many rows, and the smallest and largest label in it."""

    rows: int
    first_label: int
    last_label: int


_GROUP = np.dtype([("rows", np.int64), ("first_label", np.int32), ("last_label", np.int32)])
_ARRAYS = {"file": np.dtype(np.int32)} | {name: _GROUP[name] for name in RowGroup._fields}


def row_groups(groups: Iterable[tuple[int, int, int]] = ()) -> np.recarray:
    """Row groups as a record array [G] with the fields of `RowGroup`."""
    return np.array(list(groups), _GROUP).view(np.recarray)


@dataclass(frozen=True, eq=False)
class RowFile:
    """One file below ``rows/`` and its row groups, a record array [G] with the fields of `RowGroup`."""

    name: str
    groups: np.recarray = field(default_factory=row_groups)
    digest: Digest | None = None  # computed by the writer; kept in the manifest with those of the other files

    @property
    def rows(self) -> int:
        return int(self.groups.rows.sum())


def write_index(folder: str, files: Sequence[RowFile]) -> Digest:
    """Write the row groups of a store's files; the number in ``file`` is the place in the manifest's list of names."""
    groups = np.concatenate([row_groups(), *(file.groups for file in files)])
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
