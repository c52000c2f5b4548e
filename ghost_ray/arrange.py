"""Bring the rows of a class together: unordered row files become a clustered store's, each key once.

A shuffle in two steps of Ray tasks. Labels are counted first, so that every bucket holds about as much as a
task can sort in memory; then each part of the input is cut by bucket, and each bucket is sorted by (label, key) and
written. Which bucket a row goes to depends on the data alone: the same rows give the same files, whatever wrote
them, in whatever order, on however many workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ghost_ray.files import MANIFEST, join, kind_of, remove_tree, resolve
from ghost_ray.progress import progress
from ghost_ray.runtime import map_ordered
from ghost_ray.store import ClusteredWriter, Piece, RowFile, Store, finish_store, row_schema, to_table

BUCKET_BYTES = 192 << 20
PART_BYTES = 256 << 20
MAX_BUCKETS = 512

Filters = list[tuple[str, str, Any]]


@dataclass(frozen=True)
class Buckets:
    """Which bucket a row belongs to: ``first[label + 1]`` plus a share of the key's hash among ``split[label + 1]``."""

    first: np.ndarray
    split: np.ndarray
    count: int

    def of(self, label: np.ndarray, key_hash: np.ndarray) -> np.ndarray:
        """Bucket of each row; label [n] int32, key_hash [n] uint64 -> [n] int64."""
        place = label.astype(np.int64) + 1
        share = (key_hash >> np.uint64(32)) * self.split[place].astype(np.uint64) >> np.uint64(32)
        return np.asarray(self.first[place] + share.astype(np.int64))


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


def hash_keys(keys: pa.Array, seed: int = 0) -> np.ndarray:
    """A stable 64-bit hash of each key, [n] uint64; another seed gives another one."""
    from pandas.util import hash_array

    values = np.asarray(keys.to_numpy(zero_copy_only=False), dtype=object)
    return hash_array(values, hash_key=f"{seed % (1 << 64):016x}", categorize=False)


class _Source(Protocol):
    """Where rows to arrange come from, a part at a time."""

    def labels(self, part: Any) -> np.ndarray: ...

    def rows(self, part: Any) -> pa.Table: ...


@dataclass(frozen=True)
class _Files:
    """Parquet files of this program's own making; a part is some of them."""

    schema: pa.Schema
    filters: Filters | None

    def labels(self, part: Sequence[str]) -> np.ndarray:
        return np.concatenate([self._read(uri, ["label"]).column("label").to_numpy() for uri in part])

    def rows(self, part: Sequence[str]) -> pa.Table:
        return pa.concat_tables([self._read(uri, self.schema.names).cast(self.schema) for uri in part])

    def _read(self, uri: str, columns: list[str]) -> pa.Table:
        filesystem, path = resolve(uri)
        return pq.read_table(path, filesystem=filesystem, columns=columns, filters=self.filters, use_threads=False)


@dataclass(frozen=True)
class _Pieces:
    """A store, perhaps of somebody else's making: every row is checked before it leaves the file it is named by."""

    store: Store

    def labels(self, part: Piece) -> np.ndarray:
        return self.store.read_small(part, "label").column("label").to_numpy()

    def rows(self, part: Piece) -> pa.Table:
        tables = []
        for rows in self.store.batches(part, keys=True):
            self.store.refuse_non_finite(rows, part)
            tables.append(to_table(rows.key, rows.label, rows.pred, rows.embedding, rows.logits))
        return pa.concat_tables(tables)


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
        The files written, in label order.
    """
    return _shuffle(_Files(schema, filters), _by_size(inputs), folder, schema, classes, each_key_once=True)


def clustered(store: Store, folder: str) -> Store:
    """The store itself if the rows of a class lie together in it; else a copy in ``folder`` in which they do.

    All rows are kept, also where keys repeat. A whole copy that an earlier run left in ``folder`` is used again.
    The copy has no head of its own.
    """
    if store.clustered:
        return store
    if kind_of(join(folder, MANIFEST)) == "file":
        return Store.open(folder)
    remove_tree(folder)
    schema = row_schema(store.dimensions, None if store.manifest.has_head else store.classes)
    files = _shuffle(_Pieces(store), store.pieces(PART_BYTES), folder, schema, store.classes, each_key_once=False)
    manifest = store.manifest.model_copy(update={"layout": "clustered", "files": files})
    finish_store(folder, manifest)
    return Store(folder, manifest, files)


def _shuffle(
    source: _Source, parts: Sequence[Any], folder: str, schema: pa.Schema, classes: int, *, each_key_once: bool
) -> list[RowFile]:
    import ray

    row_bytes = 4 * sum(f.type.list_size for f in schema if pa.types.is_fixed_size_list(f.type))
    counts = np.zeros(classes + 1, np.int64)
    for _, part_counts in map_ordered(_count_labels, parts, source, classes):
        counts += part_counts
    rows = int(counts.sum())
    per_bucket = max(1, BUCKET_BYTES // row_bytes, -(-rows // MAX_BUCKETS))
    buckets = plan_buckets(counts, per_bucket)
    if buckets.count == 0:
        return []

    split: Any = ray.remote(num_cpus=1, num_returns=buckets.count, max_retries=5)(_split)
    shuffled = [split.remote(part, source, buckets) for part in parts]
    columns = [[row] if buckets.count == 1 else list(row) for row in shuffled]
    merge = ray.remote(num_cpus=1, max_retries=5)(_merge)
    merged = [
        merge.remote(b, folder, schema, each_key_once, *[column[b] for column in columns]) for b in range(buckets.count)
    ]
    del columns, shuffled
    files: list[RowFile] = []
    with progress("arrange", rows, "rows") as shown:
        for reference in merged:
            written = ray.get(reference)
            files += written
            shown.advance(sum(file.rows for file in written))
    return files


def _by_size(inputs: Sequence[str]) -> list[list[str]]:
    """Consecutive files, together about as much as a task should hold."""
    parts: list[list[str]] = []
    size = 0
    for uri in inputs:
        filesystem, path = resolve(uri)
        if not parts or size >= PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(uri)
        size += filesystem.get_file_info(path).size or 0
    return parts


def _count_labels(part: Any, source: _Source, classes: int) -> np.ndarray:
    return np.bincount(source.labels(part) + 1, minlength=classes + 1)


def _split(part: Any, source: _Source, buckets: Buckets) -> list[pa.Table] | pa.Table:
    """Cut the rows of a part by bucket; a list of ``buckets.count`` tables (one alone, not in a list)."""
    table = source.rows(part)
    bucket = buckets.of(table.column("label").to_numpy(), hash_keys(table.column("key").combine_chunks()))
    order = np.argsort(bucket, kind="stable")
    table = table.take(pa.array(order))
    ends = np.searchsorted(bucket[order], np.arange(buckets.count + 1))
    cut = [table.slice(a, b - a) for a, b in pairwise(ends)]
    return cut if buckets.count > 1 else cut[0]


def _merge(bucket: int, folder: str, schema: pa.Schema, each_key_once: bool, *tables: pa.Table) -> list[RowFile]:
    table = pa.concat_tables(tables)
    # Sorting the small columns and taking the wide rows once keeps a bucket's memory at about three times its size.
    order = table.select(["label", "key"]).append_column("at", pa.array(np.arange(table.num_rows)))
    order = order.sort_by([("label", "ascending"), ("key", "ascending")])
    keys, labels = order.column("key"), order.column("label").to_numpy()
    fresh = np.ones(len(labels), bool)
    if each_key_once and len(labels) > 1:
        same_key = pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(zero_copy_only=False)
        fresh[1:] = ~(same_key & (labels[1:] == labels[:-1]))
    taken = order.column("at").to_numpy()[fresh]
    writer = ClusteredWriter(folder, f"part-{bucket:05d}", schema)
    step = max(1, (64 << 20) // max(1, table.nbytes // max(1, table.num_rows)))
    for start in range(0, len(taken), step):
        writer.write(table.take(pa.array(taken[start : start + step])))
    return writer.close()
