"""Cutting a store into what one task reads, from the row counts and label ranges of its row groups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from ghost_ray.files import resolve
from ghost_ray.store.layout import RowFile, RowGroup


@dataclass(frozen=True)
class Piece:
    """Consecutive row groups of one file: the unit a task reads."""

    file: str
    groups: tuple[int, ...]
    rows: int
    first_label: int
    last_label: int


def cut(files: Iterable[RowFile], row_bytes: int, target_bytes: int) -> Iterator[Piece]:
    """Pieces of about ``target_bytes`` each, in the files' order; 0 gives one piece per row group."""
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


def in_label_order(files: Iterable[RowFile]) -> bool:
    """Whether the labels never fall from one row group to the next."""
    groups = [group for file in files for group in file.groups]
    return all(a.last_label <= b.first_label for a, b in pairwise(groups))


def joined(pieces: Sequence[Piece]) -> Piece:
    """Consecutive pieces of one file as one."""
    return Piece(
        pieces[0].file,
        tuple(group for piece in pieces for group in piece.groups),
        sum(piece.rows for piece in pieces),
        min(piece.first_label for piece in pieces),
        max(piece.last_label for piece in pieces),
    )


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
