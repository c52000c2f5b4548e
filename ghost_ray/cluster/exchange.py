"""The tasks of a shuffle: count labels, cut rows into runs, bring the rows of a bucket together and write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ghost_ray.cluster.buckets import Buckets
from ghost_ray.cluster.row_sources import MARK, Batch, Origin, RunBatch, RunSource, Source, Unit, vector_widths
from ghost_ray.files import reaching, resolve
from ghost_ray.store import ClusteredWriter, RowFile, to_table

_STEP_BYTES = 64 << 20  # of rows that are put in order and handed to the writer at a time


class _Held:
    """Rows in memory, put in order when they are taken out."""

    def __init__(self, widths: dict[str, int], most: int) -> None:
        # Pages that are never written to take no memory, so that ``most`` may be too many.
        self._vectors = {name: np.empty((most, width), np.float32) for name, width in widths.items()}
        self._small = {
            "label": np.empty(most, np.int32),
            "pred": np.empty(most, np.int32),
            "mark": np.empty(most, "u8"),
        }
        self._keys: list[pa.Array] = [pa.array([], pa.string())]
        self.rows = 0

    def add(self, batch: Batch, where: np.ndarray | None = None) -> None:
        """Take in the rows of a batch, or those ``where`` is set."""
        chosen = slice(None) if where is None or where.all() else np.flatnonzero(where)
        self._keys.append(batch.key if isinstance(chosen, slice) else batch.key.take(pa.array(chosen)))
        here = slice(self.rows, self.rows + len(self._keys[-1]))
        for name, column in self._small.items():
            column[here] = getattr(batch, name)[chosen]
        for name, vectors in self._vectors.items():
            vectors[here] = batch.vectors[name][chosen]
        self.rows = here.stop

    def close(self) -> None:
        """No more rows come."""
        self.key = pa.concat_arrays(self._keys)
        self._keys.clear()
        self.label, self.pred, self.mark = (column[: self.rows] for column in self._small.values())

    def table(self, at: np.ndarray) -> pa.Table:
        """The rows ``at`` as a store's table."""
        wide = {name: column[at] for name, column in self._vectors.items()}
        return to_table(self.key.take(pa.array(at)), self.label[at], self.pred[at], **wide)


def survey(places: Sequence[Any], source: Origin, classes: int) -> tuple[np.ndarray, list[Unit]]:
    """The number of rows per label from −1 on, [classes + 1], and the units that hold any."""
    counts = np.zeros(classes + 1, np.int64)
    units = []
    for handle, label in (found for place in places for found in source.labels(place)):
        if len(label):
            np.add.at(counts, label.astype(np.int64) + 1, 1)
            units.append(Unit(handle, len(label), int(label.min()), int(label.max())))
    return counts, units


def write_run(
    run: tuple[str, Sequence[Unit]], source: Source, buckets: Buckets, ranges: Sequence[range], widths: dict[str, int]
) -> np.ndarray:
    """Read some units and write their rows as a run, a record batch for each range of buckets; returns their rows."""
    uri, units = run
    held = _hold(units, source, widths)
    bucket = buckets.of(held.label, held.mark)
    order = np.argsort(bucket, kind="stable")
    ends = np.searchsorted(bucket[order], [ranges[0].start, *(part.stop for part in ranges)])
    filesystem, path = resolve(uri)
    filesystem.create_dir(path.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(path) as stream:
        writer = None
        for first, stop in pairwise(ends.tolist()):
            at = order[first:stop]
            table = held.table(at).append_column(MARK, pa.array(held.mark[at]))
            writer = writer or pa.ipc.new_file(stream, table.schema)
            writer.write_batch(table.combine_chunks().to_batches(max_chunksize=None)[0] if len(at) else _empty(table))
        if writer is not None:
            writer.close()
    return np.diff(ends).astype(np.int32)


def _hold(units: Sequence[Unit], source: Source, widths: dict[str, int]) -> _Held:
    held = _Held(widths, sum(unit.rows for unit in units))
    for batch in source.read([unit.handle for unit in units]):
        held.add(batch)
    held.close()
    return held


def _empty(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in table.schema], schema=table.schema)


@dataclass(frozen=True)
class Bucket:
    """The input of one output task: units that hold rows of the bucket among others, and its part of the runs."""

    index: int
    units: tuple[Unit, ...]
    batches: tuple[RunBatch, ...]


def write_bucket(
    bucket: Bucket, source: Source, buckets: Buckets, folder: str, schema: pa.Schema, each_key_once: bool
) -> list[RowFile]:
    """Sort the rows of a bucket by label, then by the hash of the key, and write them."""
    widths = vector_widths(schema)
    held = _Held(widths, sum(unit.rows for unit in bucket.units) + sum(batch.rows for batch in bucket.batches))
    for batch in source.read([unit.handle for unit in bucket.units]):
        held.add(batch, buckets.of(batch.label, batch.mark) == bucket.index)
    for batch in RunSource().read(bucket.batches):
        held.add(batch)
    held.close()
    order = np.lexsort((held.mark, held.label))
    same = (np.diff(held.label[order]) == 0) & (held.mark[order[1:]] == held.mark[order[:-1]])
    if same.any():
        keys = held.key.to_numpy(zero_copy_only=False)
        order = np.lexsort((keys, held.mark, held.label))
        if each_key_once:
            repeated = np.concatenate([[False], same]) & np.concatenate([[False], keys[order[1:]] == keys[order[:-1]]])
            order = order[~repeated]
    writer = ClusteredWriter(folder, f"part-{bucket.index:05d}", schema)
    step = max(1, _STEP_BYTES // (4 * sum(widths.values())))
    with reaching(folder, "out"):
        for start in range(0, len(order), step):
            writer.write(held.table(order[start : start + step]))
        return writer.close()
