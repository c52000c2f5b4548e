"""Sort rows by class: unordered row files become the files of a clustered store, each key once.

Labels are counted first, so that every bucket of consecutive labels holds about as much as a task can sort in memory.
If the labels of a row group are in few buckets, like those of a class folder, each bucket's task simply reads the row
groups it needs. Only row groups with labels of many buckets are exchanged first, through files in a scratch folder: a
round splits them into at most `WIDTH` ranges of buckets, and the next round splits each range that is still more than
one bucket. A task never holds more than `PART_BYTES`, nor opens many more than `WIDTH` files, however large the whole
is; nothing goes through Ray's object store.

Within a class, rows are in the order of the hash of their key, so the first ones are a random sample. The file of a row
depends on the rows alone: the same rows give the same files, in any input order and with any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ghost_ray.cluster.buckets import Buckets, plan_buckets
from ghost_ray.cluster.exchange import Bucket, survey, write_bucket, write_run
from ghost_ray.cluster.row_sources import (
    FileSource,
    Filters,
    Origin,
    RunBatch,
    RunSource,
    Source,
    StoreSource,
    Unit,
    vector_widths,
)
from ghost_ray.cluster.tasks import map_ordered
from ghost_ray.config.policies import ARRANGE_MEMORY
from ghost_ray.files import MANIFEST, join, kind_of, remove_tree
from ghost_ray.progress import Progress, progress
from ghost_ray.store import RowFile, Store, finish_store, row_schema

BUCKET_BYTES = 192 << 20
PART_BYTES = 256 << 20
WIDTH = 512
MOST_READS = 3  # buckets that may each read a row group directly, instead of exchanging it
_SURVEYED = 64  # places that a task counts the labels of
_SCRATCH = "exchange"


def arrange(
    inputs: Sequence[str], folder: str, schema: pa.Schema, classes: int, filters: Filters | None = None
) -> list[RowFile]:
    """Write the rows of the Parquet files ``inputs`` into ``folder``/rows, clustered; duplicates of a key are dropped.

    Parameters
    ----------
    filters : list of (column, operator, value), optional
        Only the rows of the inputs for which all of these hold.

    Returns
    -------
    list of RowFile
        The files written, in label order; within a class, in the order of the hash of the key.
    """
    return _shuffle(FileSource(schema, filters), inputs, folder, schema, classes, each_key_once=True)


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
    files = _shuffle(StoreSource(store), store.pieces(0), folder, schema, store.classes, each_key_once=False)
    manifest = store.manifest.model_copy(update={"layout": "clustered", "order": "hash"})
    return Store(folder, finish_store(folder, manifest, files), files)


@dataclass(frozen=True)
class _Target:
    """The arguments of every task of a shuffle."""

    buckets: Buckets
    folder: str
    schema: pa.Schema
    each_key_once: bool

    @property
    def row_bytes(self) -> int:
        return 4 * sum(vector_widths(self.schema).values())


def _shuffle(
    source: Origin, places: Sequence[Any], folder: str, schema: pa.Schema, classes: int, *, each_key_once: bool
) -> list[RowFile]:
    counts = np.zeros(classes + 1, np.int64)
    units: list[Unit] = []
    lots = [places[start : start + _SURVEYED] for start in range(0, len(places), _SURVEYED)]
    for _, (counted, found) in map_ordered(survey, lots, source, classes):
        counts += counted
        units += found
    row_bytes = 4 * sum(vector_widths(schema).values())
    target = _Target(plan_buckets(counts, max(1, BUCKET_BYTES // row_bytes)), folder, schema, each_key_once)
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
    target: _Target,
    scratch: str,
    shown: Progress,
) -> Iterator[list[RowFile]]:
    """Write the buckets ``span``: from ``mixed`` units of ``source``, and from ``direct`` ones of the ``original``."""
    width = -(-len(span) // WIDTH) if mixed else 1
    ranges = [span[start : start + width] for start in range(0, len(span), width)]
    runs = [(join(scratch, f"run-{n:06d}.arrow"), part) for n, part in enumerate(_by_size(mixed, target.row_bytes))]
    shared = (source, target.buckets, ranges, vector_widths(target.schema))
    rows = np.zeros((len(runs), len(ranges)), np.int32)
    for number, (_, found) in enumerate(map_ordered(write_run, runs, *shared, memory=ARRANGE_MEMORY)):
        rows[number] = found
        shown.note(f"exchanged {number + 1:,} of {len(runs):,} parts")

    def batches(place: int) -> list[RunBatch]:
        return [RunBatch(runs[n][0], place, int(rows[n, place])) for n in np.flatnonzero(rows[:, place])]

    if width == 1:
        outputs = (
            Bucket(bucket, tuple(direct.get(bucket, ())), tuple(batches(place))) for place, bucket in enumerate(span)
        )
        told = (original, target.buckets, target.folder, target.schema, target.each_key_once)
        for _, files in map_ordered(write_bucket, outputs, *told, memory=ARRANGE_MEMORY):
            yield files
        return
    for place, part in enumerate(ranges):
        again = [Unit(batch, batch.rows, -1, -1) for batch in batches(place)]
        inner = join(scratch, f"range-{place:03d}")
        yield from _distribute(RunSource(), again, original, direct, part, target, inner, shown)
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
