"""Text with a row per line as a table: CSV with or without a header, tabs, semicolons, or what numpy.savetxt writes."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from ghost_ray.files import resolve
from ghost_ray.jobs.importing.readers.array_file import ArrayFile, reads
from ghost_ray.jobs.importing.readers.customary import means
from ghost_ray.jobs.importing.readers.tables import Column, Table, TableFile
from ghost_ray.jobs.importing.workspace import Workspace

_HEAD_BYTES = 16 << 20
_BLOCK_BYTES = 4 << 20


@reads("text")
def _open_csv(uri: str, workspace: Workspace) -> ArrayFile:
    return TableFile(_CsvTable(uri), workspace)


class _CsvTable(Table):
    kind = "csv"
    rows = None

    def __init__(self, uri: str) -> None:
        self._uri = uri
        lines = _first_lines(uri)
        self._delimiter = _delimiter(lines[0])
        first, *others = list(csv.reader(lines, delimiter=self._delimiter))
        sample = others[0] if others else first
        if len(sample) != len(first):
            raise ValueError(f"line 1 has {len(first)} cells and line 2 has {len(sample)}")
        self._has_header = _is_header(first, sample)
        self._names = first if self._has_header else [str(place) for place in range(len(first))]
        if len(set(self._names)) < len(self._names):
            twice = next(name for name in self._names if self._names.count(name) > 1)
            raise ValueError(f"two of its columns are named {twice!r}")
        self._block_bytes = max(_BLOCK_BYTES, 4 * max(map(len, lines)))
        self.columns = [_column(name, cell) for name, cell in zip(self._names, sample, strict=True)]

    def _batches(self, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        filesystem, path = resolve(self._uri)
        try:
            with filesystem.open_input_stream(path) as stream:
                yield from arrow_csv.open_csv(
                    stream,
                    arrow_csv.ReadOptions(
                        block_size=self._block_bytes, column_names=self._names, skip_rows=int(self._has_header)
                    ),
                    arrow_csv.ParseOptions(delimiter=self._delimiter),
                    arrow_csv.ConvertOptions(include_columns=list(types), column_types=types),
                )
        except pa.ArrowInvalid as error:
            raise ValueError(_reason(str(error), list(types))) from None

    def numbers(self, names: Sequence[str]) -> Iterator[np.ndarray]:
        for batch in self._batches(dict.fromkeys(names, pa.float64())):
            block = np.empty((batch.num_rows, len(names)), np.float32)
            with np.errstate(over="ignore"):  # the infinity is refused later, with its row
                for place in range(len(names)):
                    block[:, place] = batch.column(place).to_numpy(zero_copy_only=False)
            yield block

    def lists(self, name: str) -> Iterator[np.ndarray]:
        raise ValueError(f"column {name} of a text file holds no lists")

    def values(self, name: str) -> pa.ChunkedArray:
        # As text: whether labels are numbers is only known when all of them are read.
        return pa.chunked_array([batch.column(0) for batch in self._batches({name: pa.string()})], pa.string())


def _first_lines(uri: str) -> list[str]:
    """The first two lines that are not empty."""
    filesystem, path = resolve(uri)
    with filesystem.open_input_stream(path) as stream:
        text = stream.read(_HEAD_BYTES).decode("utf-8-sig", errors="replace")
    lines = [line for line in text.splitlines()[:100] if line.strip()]
    if not lines:
        raise ValueError("it has no lines")
    return lines[:2]


def _delimiter(line: str) -> str:
    """The separator between the cells. Spaces only separate numbers, since a name may contain spaces."""
    for sign in "\t;,":
        if sign in line:
            return sign
    return " " if " " in line and all(map(_is_number, line.split(" "))) else ","


def _is_header(first: list[str], second: list[str]) -> bool:
    """Whether the first line names the columns: where it holds a word, or counts them.

    A single column of words has a header only if its first word is a common column name.
    """
    if all(map(_is_number, first)):
        return len(first) > 2 and first == [str(place) for place in range(len(first))]
    if len(first) == 1 and not _is_number(second[0]):
        return means(first[0], "labels") or means(first[0], "keys")
    return True


def _column(name: str, sample: str) -> Column:
    if not sample or _is_number(sample):  # a cell may be empty; what is in the others is seen when they are read
        return Column(name, "numbers", "numbers")
    return Column(name, "text", "text")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _reason(text: str, names: list[str]) -> str:
    """Arrow's message, with the name of a column instead of its number."""
    prefix, mark, rest = text.partition("In CSV column #")
    if not mark:
        return text
    number, _, problem = rest.partition(": ")
    name = names[int(number)] if number.isdigit() and int(number) < len(names) else number
    return f"{prefix}column {name}: {problem}"
