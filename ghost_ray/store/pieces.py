"""Cutting a store into what one task reads, from the row counts and label ranges of its row groups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from ghost_ray.files import resolve
from ghost_ray.store.row_index import UNKNOWN, RowFile, RowGroup


@dataclass(frozen=True)
class Piece:
    """Consecutive row groups of one file: the unit a task reads, with all that it needs to know of the index."""

    file: str
    start: int  # position in the file of the first row
    first_group: int
    parts: tuple[RowGroup, ...]

    @property
    def groups(self) -> range:
        """The numbers of the row groups in the file."""
        return range(self.first_group, self.first_group + len(self.parts))

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def first_label(self) -> int:
        return min(part.first_label for part in self.parts)

    @property
    def last_label(self) -> int:
        return max(part.last_label for part in self.parts)

    def split(self) -> list[Piece]:
        """The row groups, each as a separate piece."""
        starts = np.cumsum([self.start, *(part.rows for part in self.parts)]).tolist()
        return [
            Piece(self.file, start, group, (part,))
            for group, part, start in zip(self.groups, self.parts, starts, strict=False)
        ]


def cut(files: Iterable[RowFile], row_bytes: int, target_bytes: int) -> Iterator[Piece]:
    """Pieces of about ``target_bytes`` each, in the files' order; 0 gives one piece per row group."""
    for file in files:
        start, first, rows = 0, 0, 0
        taken: list[RowGroup] = []
        for index, values in enumerate(file.groups.tolist()):
            taken.append(RowGroup(*values))
            rows += taken[-1].rows
            if rows * row_bytes >= target_bytes or index == len(file.groups) - 1:
                yield Piece(file.name, start, first, tuple(taken))
                start, first, rows = start + rows, index + 1, 0
                taken = []


def cut_by_class(files: Iterable[RowFile], row_bytes: int, target_bytes: int) -> list[list[Piece]]:
    """Ranges of pieces of about ``target_bytes``, no class in two of them; the row groups are in label order."""
    ranges: list[list[Piece]] = []
    size = 0
    for piece in cut(files, row_bytes, 0):
        same_class = bool(ranges) and ranges[-1][-1].last_label == piece.first_label
        if ranges and (same_class or size < target_bytes):
            ranges[-1].append(piece)
        else:
            ranges.append([piece])
            size = 0
        size += piece.rows * row_bytes
    return [[joined(list(mine)) for _, mine in groupby(pieces, key=lambda piece: piece.file)] for pieces in ranges]


def holding(files: Iterable[RowFile], label: int) -> Iterator[Piece]:
    """The row groups that may hold rows of a class, each as a piece."""
    for file in files:
        groups = file.groups
        for at in np.flatnonzero((groups.first_label <= label) & (label <= groups.last_label)).tolist():
            yield Piece(file.name, int(groups.rows[:at].sum()), at, (RowGroup(*groups[at].tolist()),))


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


def joined(pieces: Sequence[Piece]) -> Piece:
    """Consecutive pieces of one file as one."""
    first = pieces[0]
    return Piece(first.file, first.start, first.first_group, tuple(part for piece in pieces for part in piece.parts))


@contextlib.contextmanager
def open_parquet(where: str) -> Iterator[tuple[pq.ParquetFile, pa.NativeFile]]:
    """A Parquet file and its byte source, opened in the fastest way for its place."""
    filesystem, path = resolve(where)
    local = isinstance(filesystem, fs.LocalFileSystem)
    with contextlib.ExitStack() as opened:
        source = opened.enter_context(pa.OSFile(path) if local else filesystem.open_input_file(path))
        # pre_buffer costs a copy on local disks and saves round trips on object stores.
        yield opened.enter_context(pq.ParquetFile(source, pre_buffer=not local)), source


def inspect_file(where: str) -> list[RowGroup]:
    """Row counts and label ranges of a Parquet file's row groups, from its footer where it has statistics."""
    groups = []
    with open_parquet(where) as (file, _):
        metadata = file.metadata
        names = [file.schema.column(i).path for i in range(len(file.schema))]
        if "label" not in names:
            raise ValueError("has no column label")
        position = names.index("label")
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            if group.num_rows == 0:
                groups.append(RowGroup(rows=0, first_label=0, last_label=0))
                continue
            statistics = group.column(position).statistics
            if statistics is not None and statistics.has_min_max:
                low, high = statistics.min, statistics.max
            else:
                bounds = pc.min_max(file.read_row_group(index, columns=["label"]).column("label")).as_py()
                low, high = bounds["min"], bounds["max"]
            groups.append(RowGroup(rows=group.num_rows, first_label=low, last_label=high))
    return groups
