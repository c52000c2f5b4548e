"""Where the rows of a clustered store come from: row groups of files or of a store, and runs of an exchange."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import fs
from pyarrow.parquet import filters_to_expression

from ghost_ray.files import resolve
from ghost_ray.store import Piece, Store, hash_keys, open_parquet, read_vectors

MARK = "mark"  # the column of a run that holds the hash of the key
_AT = "at"  # position of the rows in their row group

Filters = list[tuple[str, str, Any]]
FileGroup = tuple[str, int]  # URI, row group


# A *unit* is a row group of the input, the smallest thing that is read. A *run* is an Arrow file in which the rows of
# some units are grouped by range of buckets, one record batch per range: a reader of one range reads that batch of
# every run.


@dataclass(frozen=True)
class Unit:
    """A row group of the input: what its source reads it by, and what its label column says."""

    handle: Any
    rows: int
    first_label: int
    last_label: int


@dataclass(frozen=True)
class RunBatch:
    """One range of one run."""

    uri: str
    place: int
    rows: int


@dataclass(frozen=True)
class Batch:
    """Some rows as columns; ``mark`` is the hash of the key, which orders the rows within a class."""

    key: pa.Array
    label: np.ndarray
    pred: np.ndarray
    mark: np.ndarray
    vectors: dict[str, np.ndarray]


class Source(Protocol):
    """Where rows come from."""

    def read(self, handles: Sequence[Any]) -> Iterator[Batch]:
        """The rows of units."""


class Origin(Source, Protocol):
    """Where rows to arrange come from in the first place: files, or a store."""

    def labels(self, place: Any) -> list[tuple[Any, np.ndarray]]:
        """The handle of each unit at a place, and its labels."""


def vector_widths(schema: pa.Schema) -> dict[str, int]:
    """The names of a schema's vectors, and how long they are."""
    return {field.name: field.type.list_size for field in schema if pa.types.is_fixed_size_list(field.type)}


@dataclass(frozen=True)
class FileSource:
    """Parquet files that this program wrote; a place is a file's URI."""

    schema: pa.Schema
    filters: Filters | None

    def labels(self, place: str) -> list[tuple[FileGroup, np.ndarray]]:
        with open_parquet(place) as (file, _):
            tables = [self._narrow(file, group, ["label"]) for group in range(file.num_row_groups)]
        return [((place, group), table["label"].to_numpy()) for group, table in enumerate(tables)]

    def read(self, handles: Sequence[FileGroup]) -> Iterator[Batch]:
        widths = vector_widths(self.schema)
        for uri, groups in groupby(handles, key=lambda handle: handle[0]):
            with open_parquet(uri) as (file, source):
                for _, group in groups:
                    rows = file.metadata.row_group(group).num_rows
                    vectors = {name: read_vectors(source, file, group, name, width) for name, width in widths.items()}
                    decoded = [name for name, values in vectors.items() if values is None]
                    table = self._narrow(file, group, ["key", "label", "pred", *decoded])
                    at = table[_AT].to_numpy()
                    plain = {name: values for name, values in vectors.items() if values is not None}
                    if len(at) < rows:
                        plain = {name: values[at] for name, values in plain.items()}
                    yield _batch(table, plain | {name: _numbers(table[name]) for name in decoded})

    def _narrow(self, file: Any, group: int, names: list[str]) -> pa.Table:
        """Columns of a row group, only the rows that pass the filters, and their positions in the group."""
        asked = [name for name, _, _ in self.filters or []]
        table = file.read_row_group(group, columns=list(dict.fromkeys([*names, *asked])), use_threads=False)
        table = table.append_column(_AT, pa.array(np.arange(table.num_rows)))
        return table if self.filters is None else table.filter(filters_to_expression(self.filters))


@dataclass(frozen=True)
class StoreSource:
    """A store, which may come from elsewhere: every row is checked when it is read.

    A place is a piece of one row group.
    """

    store: Store

    def labels(self, place: Piece) -> list[tuple[Piece, np.ndarray]]:
        return [(place, self.store.read_small(place, "label").column("label").to_numpy())]

    def read(self, handles: Sequence[Piece]) -> Iterator[Batch]:
        for piece in handles:
            for rows, key in self.store.keyed_batches(piece):
                self.store.refuse_non_finite(rows, piece)
                vectors = {"embedding": rows.embedding} | ({"logits": rows.logits} if rows.has_logits else {})
                yield Batch(key, rows.label, rows.pred, hash_keys(key), vectors)


@dataclass(frozen=True)
class RunSource:
    """Runs of an earlier round; one range of a run is read."""

    def read(self, handles: Sequence[RunBatch]) -> Iterator[Batch]:
        for handle in handles:
            filesystem, path = resolve(handle.uri)
            local = isinstance(filesystem, fs.LocalFileSystem)
            with pa.memory_map(path) if local else filesystem.open_input_file(path) as file:
                table = pa.Table.from_batches([pa.ipc.open_file(file).get_batch(handle.place)])
                wide = vector_widths(table.schema)
                yield _batch(table, {name: _numbers(table[name]) for name in wide}, table[MARK].to_numpy())


def _batch(table: pa.Table, vectors: dict[str, np.ndarray], mark: np.ndarray | None = None) -> Batch:
    key = table["key"].combine_chunks()
    label, pred = (table[name].to_numpy() for name in ("label", "pred"))
    return Batch(key, label, pred, hash_keys(key) if mark is None else mark, vectors)


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """A column of vectors as [n, width]."""
    flat = np.concatenate([chunk.flatten().to_numpy() for chunk in column.chunks] or [np.empty(0, np.float32)])
    return flat.reshape(-1, column.type.list_size)
