"""Tables as arrays: a column of lists is a matrix, and so are numbered columns (f0, f1, …) and a list of names."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from ghost_ray.jobs.importing.readers.array_file import ArrayFile, Entry
from ghost_ray.jobs.importing.readers.customary import is_index, means
from ghost_ray.jobs.importing.workspace import Workspace

_NUMBERED = re.compile(r"(.*?)[_. \[-]?(\d{1,9})\]?")
ALL = "*"  # every column of numbers but labels and keys


@dataclass(frozen=True)
class Column:
    """A column of a table: of single values, or of lists of ``width`` numbers."""

    name: str
    holds: Literal["numbers", "text", "lists", "other"]
    type: str  # as the file calls it
    width: int | None = None  # of lists, None if unknown before reading


class Table(ABC):
    """A table that is read a batch of rows at a time."""

    kind: str
    columns: list[Column]
    rows: int | None  # None if unknown before reading

    @abstractmethod
    def numbers(self, names: Sequence[str]) -> Iterator[np.ndarray]:
        """Columns of numbers as arrays [n, len(names)]; a missing value is NaN."""

    @abstractmethod
    def lists(self, name: str) -> Iterator[np.ndarray]:
        """A column of lists as arrays [n, width]."""

    @abstractmethod
    def values(self, name: str) -> pa.ChunkedArray:
        """A column of single values, whole."""


class TableFile(ArrayFile):
    """A table's matrices and columns."""

    def __init__(self, table: Table, workspace: Workspace) -> None:
        self._table, self._workspace = table, workspace
        families = _families(table.columns)
        together = {name for names in families.values() for name in names}
        entries = [self._matrix(family, names) for family, names in families.items()]
        single = [column for column in table.columns if column.name not in together and not is_index(column.name)]
        entries += [self._column(column) for column in single if column.holds != "other"]
        numbers = [column.name for column in single if column.holds == "numbers" and not _names_rows(column.name)]
        if not families and len(numbers) > 1:
            entries.append(self._matrix(ALL, numbers))
        super().__init__(table.kind, entries)

    def find(self, name: str) -> Entry | None:
        """A column, numbered columns by what they have in common, or columns separated by commas."""
        found = super().find(name)
        wanted = name.split(",")
        by_name = {column.name: column for column in self._table.columns}
        if found is None and all(word in by_name for word in wanted):
            if len(wanted) == 1:
                return self._column(by_name[name])
            return self._matrix(name, wanted)
        return found

    def _column(self, column: Column) -> Entry:
        if column.holds == "lists":
            shape = (self._table.rows, column.width)
            return Entry(column.name, shape, column.type, lambda: self._spooled(self._table.lists(column.name)))
        return Entry(column.name, (self._table.rows,), column.type, lambda: _plain(self._table.values(column.name)))

    def _matrix(self, name: str, names: list[str]) -> Entry:
        columns = f"in columns {names[0]} … {names[-1]}"
        shape = (self._table.rows, len(names))
        return Entry(name, shape, columns, lambda: self._spooled(self._table.numbers(names)))

    def _spooled(self, blocks: Iterator[np.ndarray]) -> np.ndarray:
        first = next(blocks, None)
        if first is None:
            raise ValueError("it has no rows")

        def all_blocks() -> Iterator[np.ndarray]:
            yield first
            yield from blocks

        return self._workspace.spool(all_blocks(), first.shape[1:], np.dtype(np.float32))


def _names_rows(name: str) -> bool:
    return means(name, "labels") or means(name, "keys")


def _families(columns: Sequence[Column]) -> dict[str, list[str]]:
    """Columns of numbers whose names differ by a number alone, counted from 0 or 1 without a gap, in that order."""
    numbered: dict[str, dict[int, str]] = {}
    for column in columns:
        match = _NUMBERED.fullmatch(column.name)
        if match and column.holds == "numbers":
            numbered.setdefault(match[1], {})[int(match[2])] = column.name
    families = {}
    for prefix, members in numbered.items():
        places = sorted(members)
        if len(places) > 1 and places[0] in (0, 1) and places[-1] - places[0] == len(places) - 1:
            families[prefix] = [members[place] for place in places]
    return families


def _plain(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers as numbers with NaN for what is missing, all else as text with None."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        return np.asarray(column)
    return np.asarray(column.cast(pa.string()).to_pylist(), dtype=object)
