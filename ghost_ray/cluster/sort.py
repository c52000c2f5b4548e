"""Sort rows by class: unordered row files become the files of a clustered store, each key once.

Labels are counted first, so that every bucket of consecutive labels holds about as much as a task can sort in memory.
If the labels of a record batch are in few buckets, like those of a class folder, each bucket's task simply reads the
batches it needs. Only batches with labels of many buckets are exchanged first, through files in a scratch folder: a
round splits them into at most `WIDTH` ranges of buckets, and the next round splits each range that is still more than
one bucket. A task never holds more than `PART_BYTES`, nor opens many more than `WIDTH` files, however large the whole
is; nothing goes through Ray's object store.

Within a class, rows are in the order of the hash of their key, so the first ones are a random sample. The file of a row
depends on the rows alone: the same rows give the same files, in any input order and with any number of workers.

A *unit* is a record batch of the input, the smallest thing that is read. A *run* is an Arrow file in which the rows of
some units are grouped by range of buckets, one record batch per range: a reader of one range reads that batch of every
run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ghost_ray.cluster.tasks import map_ordered
from ghost_ray.config.limits import ARRANGE_MEMORY
from ghost_ray.files import MANIFEST, join, kind_of, reaching, remove_tree, resolve
from ghost_ray.progress import Progress, progress
from ghost_ray.store import (
    ClusteredWriter,
    RowFile,
    RowGroups,
    Store,
    finish_store,
    hash_keys,
    open_rows,
    row_schema,
    to_table,
    vectors_of,
    write_rows,
)

BUCKET_BYTES = 192 << 20
PART_BYTES = 256 << 20
WIDTH = 512
MOST_READS = 3  # buckets that may each read a record batch directly, instead of exchanging it
_SURVEYED = 64  # places that a task counts the labels of
_SCRATCH = "exchange"
_HASH = "hash"  # the column of a run that holds the hash of the key
_FAILED = "failed"  # the column of an input whose rows are left out where it is true
_STEP_BYTES = 64 << 20  # of rows that are put in order and handed to the writer at a time


def arrange(inputs: Sequence[str], folder: str, schema: pa.Schema, classes: int) -> list[RowFile]:
    """Write the rows of Arrow IPC files into ``folder``/rows, clustered; duplicates of a key are dropped.

    Parameters
    ----------
    inputs : sequence of str
        URIs of block files and row files; they have at least the columns of ``schema``. Rows that are true in a column
        ``failed`` are left out.

    Returns
    -------
    list of RowFile
        The files written, in label order; within a class, in the order of the hash of the key.
    """
    return _sort(FileSource(), inputs, folder, schema, classes, each_key_once=True)


def clustered(store: Store, folder: str) -> Store:
    """The store itself if the rows of each class are contiguous in it; else a copy in ``folder`` in which they are.

    All rows are kept, also where keys repeat. A complete copy that an earlier run left in ``folder`` is reused. The
    copy has no head of its own.
    """
    if store.clustered:
        return store
    if kind_of(join(folder, MANIFEST)) == "file":
        return Store.open(folder)
    remove_tree(folder)
    schema = row_schema(store.dimensions, None if store.manifest.has_head else store.classes)
    files = _sort(StoreSource(store), store.row_groups(0), folder, schema, store.classes, each_key_once=False)
    manifest = store.manifest.model_copy(update={"layout": "clustered", "order": "hash"})
    return Store(folder, finish_store(folder, manifest, files), files)


def plan_buckets(counts: np.ndarray, rows_per_bucket: int) -> Buckets:
    """Pack consecutive labels into buckets of about ``rows_per_bucket`` rows; a larger label gets several.

    Parameters
    ----------
    counts : [K + 1] int64
        Rows with label −1, 0, …, K−1.
    """
    first = np.zeros(len(counts), np.int64)
    split = np.ones(len(counts), np.int64)
    bucket, filled = 0, 0
    for place, rows in enumerate(counts.tolist()):
        if filled and filled + rows > rows_per_bucket:
            bucket, filled = bucket + 1, 0
        first[place] = bucket
        filled += rows
        if rows > rows_per_bucket:
            split[place] = -(-rows // rows_per_bucket)
            bucket, filled = bucket + int(split[place]), 0
    return Buckets(first, split, bucket + (1 if filled else 0))


def _sort(
    source: Source, places: Sequence[Any], folder: str, schema: pa.Schema, classes: int, *, each_key_once: bool
) -> list[RowFile]:
    counts = np.zeros(classes + 1, np.int64)
    units: list[Unit] = []
    lots = [places[start : start + _SURVEYED] for start in range(0, len(places), _SURVEYED)]
    for _, (counted, found) in map_ordered(survey, lots, source, classes):
        counts += counted
        units += found
    row_bytes = 4 * sum(vector_widths(schema).values())
    target = Target(plan_buckets(counts, max(1, BUCKET_BYTES // row_bytes)), folder, schema, each_key_once)
    direct: dict[int, list[Unit]] = {}
    mixed: list[Unit] = []
    for unit in units:
        needed_by = target.buckets.between(unit.first_label, unit.last_label)
        if len(needed_by) > MOST_READS:
            mixed.append(unit)
            continue
        for bucket in needed_by:
            direct.setdefault(bucket, []).append(unit)
    scratch = join(folder, _SCRATCH)
    remove_tree(scratch)  # of a run that was killed
    files: list[RowFile] = []
    with progress("arrange", int(counts.sum()), "rows") as shown:
        every = range(target.buckets.count)
        for written in _distribute(source, mixed, source, direct, every, target, scratch, shown):
            files += written
            shown.advance(sum(file.rows for file in written))
    remove_tree(scratch)
    return files


def _distribute(
    source: Source,
    mixed: Sequence[Unit],
    original: Source,
    direct: dict[int, list[Unit]],
    span: range,
    target: Target,
    scratch: str,
    shown: Progress,
) -> Iterator[list[RowFile]]:
    """Write the buckets ``span``: from ``mixed`` units of ``source``, and from ``direct`` ones of the ``original``."""
    width = -(-len(span) // WIDTH) if mixed else 1
    ranges = [span[start : start + width] for start in range(0, len(span), width)]
    runs = [(join(scratch, f"run-{n:06d}.arrow"), part) for n, part in enumerate(_by_size(mixed, target.row_bytes))]
    rows = np.zeros((len(runs), len(ranges)), np.int32)
    for number, (_, found) in enumerate(map_ordered(write_run, runs, source, target, ranges, memory=ARRANGE_MEMORY)):
        rows[number] = found
        shown.note(f"exchanged {number + 1:,} of {len(runs):,} parts")

    def from_runs(place: int) -> list[Unit]:
        return [Unit((runs[n][0], place), int(rows[n, place]), -1, -1) for n in np.flatnonzero(rows[:, place])]

    if width == 1:
        outputs = (
            Bucket(bucket, tuple(direct.get(bucket, ())), tuple(from_runs(place))) for place, bucket in enumerate(span)
        )
        for _, files in map_ordered(write_bucket, outputs, original, target, memory=ARRANGE_MEMORY):
            yield files
        return
    for place, part in enumerate(ranges):
        inner = join(scratch, f"range-{place:03d}")
        yield from _distribute(FileSource(), from_runs(place), original, direct, part, target, inner, shown)
        remove_tree(inner)


def _by_size(units: Sequence[Unit], row_bytes: int) -> list[list[Unit]]:
    """Consecutive units, together about as much as a task should hold."""
    parts: list[list[Unit]] = []
    size = 0
    for unit in units:
        if not parts or size + unit.rows * row_bytes > PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(unit)
        size += unit.rows * row_bytes
    return parts


# ---- the tasks


@dataclass(frozen=True)
class Buckets:
    """Which rows are sorted and written together: those of consecutive labels, or a share of a large label.

    The bucket of a row is ``first[label + 1]`` plus a share of the key's hash among ``split[label + 1]``.
    """

    first: np.ndarray
    split: np.ndarray
    count: int

    def of(self, label: np.ndarray, key_hash: np.ndarray) -> np.ndarray:
        """Bucket of each row; label [n] int32, key_hash [n] uint64 -> [n] int64."""
        place = label.astype(np.int64) + 1
        share = (key_hash >> np.uint64(32)) * self.split[place].astype(np.uint64) >> np.uint64(32)
        return np.asarray(self.first[place] + share.astype(np.int64))

    def between(self, first_label: int, last_label: int) -> range:
        """The buckets of the labels ``first_label`` to ``last_label``."""
        last = last_label + 1
        return range(int(self.first[first_label + 1]), int(self.first[last] + self.split[last]))


@dataclass(frozen=True)
class Target:
    """What all tasks of a sort write."""

    buckets: Buckets
    folder: str
    schema: pa.Schema
    each_key_once: bool

    @property
    def row_bytes(self) -> int:
        return 4 * sum(vector_widths(self.schema).values())


class Unit(NamedTuple):
    """A record batch of the input: what its source reads it by, and what its label column says."""

    handle: Any
    rows: int
    first_label: int
    last_label: int


class Batch(NamedTuple):
    """Some rows as columns; the hash of the key orders the rows within a class."""

    table: pa.RecordBatch  # key, group
    label: np.ndarray
    pred: np.ndarray
    hash: np.ndarray
    vectors: dict[str, np.ndarray]


class Source(Protocol):
    """Where rows come from."""

    def labels(self, place: Any) -> list[tuple[Any, np.ndarray]]:
        """The handle of each unit at a place, and its labels."""

    def read(self, handles: Sequence[Any]) -> Iterator[Batch]:
        """The rows of units."""


class FileSource:
    """Arrow IPC files that this program wrote; a place is a file's URI, a handle that and the number of a batch."""

    def labels(self, place: str) -> list[tuple[tuple[str, int], np.ndarray]]:
        with open_rows(place, ["label", _FAILED]) as file:
            batches = [_not_failed(file.get_batch(number)) for number in range(file.num_record_batches)]
        return [((place, number), batch["label"].to_numpy()) for number, batch in enumerate(batches)]

    def read(self, handles: Sequence[tuple[str, int]]) -> Iterator[Batch]:
        for uri, of_file in groupby(handles, key=lambda handle: handle[0]):
            with open_rows(uri) as file:
                for _, number in of_file:
                    rows = _not_failed(file.get_batch(number))
                    known = _HASH in rows.schema.names
                    hashed = rows.column(_HASH).to_numpy() if known else hash_keys(rows.column("key"))
                    label, pred = (rows.column(name).to_numpy() for name in ("label", "pred"))
                    vectors = {name: vectors_of(rows.column(name)) for name in vector_widths(rows.schema)}
                    yield Batch(rows.select(["key", "group"]), label, pred, hashed, vectors)


class StoreSource:
    """A store, which may come from elsewhere: every row is checked when it is read. A place is one row group."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def labels(self, place: RowGroups) -> list[tuple[RowGroups, np.ndarray]]:
        return [(place, self._store.read_small(place, "label").column("label").to_numpy())]

    def read(self, handles: Sequence[RowGroups]) -> Iterator[Batch]:
        for groups in handles:
            for rows, table in self._store.table_batches(groups, "key", "group"):
                self._store.refuse_non_finite(rows, groups)
                vectors = {"embedding": rows.embedding} | ({"logits": rows.logits} if rows.has_logits else {})
                yield Batch(table.select(["key", "group"]), rows.label, rows.pred, hash_keys(table["key"]), vectors)


def vector_widths(schema: pa.Schema) -> dict[str, int]:
    """The names of a schema's vectors, and how long they are."""
    return {field.name: field.type.list_size for field in schema if pa.types.is_fixed_size_list(field.type)}


def _not_failed(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.filter(pc.invert(rows[_FAILED])) if _FAILED in rows.schema.names else rows


class _Held:
    """Rows in memory, put in order when they are taken out."""

    def __init__(self, schema: pa.Schema, most: int) -> None:
        # Pages that are never written to take no memory, so that ``most`` may be too many.
        self._vectors = {name: np.empty((most, width), np.float32) for name, width in vector_widths(schema).items()}
        self._label, self._pred, self._hash = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, "u8")
        self._texts: dict[str, list[pa.Array]] = {name: [pa.array([], pa.string())] for name in ("key", "group")}
        self.rows = 0

    def add(self, batch: Batch, where: np.ndarray | None = None) -> None:
        """Take in the rows of a batch, or those ``where`` is set."""
        chosen = np.arange(len(batch.label)) if where is None else np.flatnonzero(where)
        table = batch.table.take(pa.array(chosen))  # a copy: a slice would keep the whole input in memory
        for name, parts in self._texts.items():
            parts.append(table.column(name))
        here = slice(self.rows, self.rows + table.num_rows)
        every = slice(None) if len(chosen) == len(batch.label) else chosen
        self._label[here], self._pred[here] = batch.label[every], batch.pred[every]
        self._hash[here] = batch.hash[every]
        for name, vectors in self._vectors.items():
            vectors[here] = batch.vectors[name][every]
        self.rows = here.stop

    def close(self) -> None:
        """No more rows come."""
        self.key, self.group = (pa.concat_arrays(parts) for parts in self._texts.values())
        self._texts.clear()
        self.label, self.pred, self.hash = (column[: self.rows] for column in (self._label, self._pred, self._hash))

    def table(self, at: np.ndarray) -> pa.Table:
        """The rows ``at`` as a store's table."""
        wide = {name: column[at] for name, column in self._vectors.items()}
        key, group = (texts.take(pa.array(at)) for texts in (self.key, self.group))
        return to_table(key, self.label[at], self.pred[at], **wide, group=group)


def survey(places: Sequence[Any], source: Source, classes: int) -> tuple[np.ndarray, list[Unit]]:
    """The number of rows per label from −1 on, [classes + 1], and the units that hold any."""
    counts = np.zeros(classes + 1, np.int64)
    units = []
    for handle, label in (found for place in places for found in source.labels(place)):
        if len(label):
            counts += np.bincount(label.astype(np.int64) + 1, minlength=classes + 1)
            units.append(Unit(handle, len(label), int(label.min()), int(label.max())))
    return counts, units


def write_run(run: tuple[str, Sequence[Unit]], source: Source, target: Target, ranges: Sequence[range]) -> np.ndarray:
    """Read some units and write their rows as a run, a record batch for each range of buckets; returns their rows."""
    uri, units = run
    held = _Held(target.schema, sum(unit.rows for unit in units))
    for batch in source.read([unit.handle for unit in units]):
        held.add(batch)
    held.close()
    bucket = target.buckets.of(held.label, held.hash)
    order = np.argsort(bucket, kind="stable")
    ends = np.searchsorted(bucket[order], [ranges[0].start, *(part.stop for part in ranges)])
    schema = target.schema.append(pa.field(_HASH, pa.uint64()))

    def batches() -> Iterator[pa.RecordBatch]:
        for first, stop in pairwise(ends.tolist()):
            at = order[first:stop]
            columns = held.table(at).append_column(_HASH, pa.array(held.hash[at])).columns
            yield pa.RecordBatch.from_arrays([column.combine_chunks() for column in columns], schema=schema)

    filesystem, path = resolve(uri)
    filesystem.create_dir(path.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(path) as stream:
        write_rows(stream, batches(), schema)
    return np.diff(ends).astype(np.int32)


class Bucket(NamedTuple):
    """The input of one output task: units that hold rows of the bucket among others, and its part of the runs."""

    number: int
    units: tuple[Unit, ...]
    from_runs: tuple[Unit, ...]


def write_bucket(bucket: Bucket, source: Source, target: Target) -> list[RowFile]:
    """Sort the rows of a bucket by label, then by the hash of the key, and write them."""
    held = _Held(target.schema, sum(unit.rows for unit in (*bucket.units, *bucket.from_runs)))
    for batch in source.read([unit.handle for unit in bucket.units]):
        held.add(batch, target.buckets.of(batch.label, batch.hash) == bucket.number)
    for batch in FileSource().read([unit.handle for unit in bucket.from_runs]):
        held.add(batch)
    held.close()
    order = np.lexsort((held.hash, held.label))
    same = (np.diff(held.label[order]) == 0) & (held.hash[order[1:]] == held.hash[order[:-1]])
    if same.any():
        keys = held.key.to_numpy(zero_copy_only=False)
        order = np.lexsort((keys, held.hash, held.label))
        if target.each_key_once:
            repeated = np.concatenate([[False], same]) & np.concatenate([[False], keys[order[1:]] == keys[order[:-1]]])
            order = order[~repeated]
    writer = ClusteredWriter(target.folder, f"part-{bucket.number:05d}", target.schema)
    step = max(1, _STEP_BYTES // target.row_bytes)
    with reaching(target.folder, "out"):
        for start in range(0, len(order), step):
            writer.write(held.table(order[start : start + step]))
        return writer.close()
