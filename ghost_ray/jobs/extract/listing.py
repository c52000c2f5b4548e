"""A group of shards → blocks of images that are left to do, on the workers: listed, labelled, in order.

For images that are adjacent in a shard, the bytes come along, so no byte is requested twice. A task that dies is run
again and must give the same blocks, so finished images are those that were finished when the round began.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ghost_ray.config.limits import Stage
from ghost_ray.errors import InputError
from ghost_ray.jobs.extract.blocks import (
    Block,
    ListingName,
    ListingRecord,
    Remaining,
    done_positions,
    write_listing,
)
from ghost_ray.sources import Failure, LabelMap, ListingDigest, Reader, Scan, Shard, common_names, shards_fingerprint
from ghost_ray.store import UNKNOWN, hash_keys

_NAME_DIGITS = 16  # of a digest in a file's name

# A kill loses the block an actor computes and the one it writes: together well below 1,000 images.
MAX_BLOCK_ROWS = 384
_PIXEL_BYTES = 32 << 20
_BLOCK_BYTES = 64 << 20  # of encoded images that travel with a block

LISTED = pa.schema(
    [
        ("key", pa.string()),
        ("file", pa.string()),
        ("start", pa.int64()),
        ("size", pa.int64()),
        ("label", pa.int32()),  # an index into the head, or UNKNOWN
        ("group", pa.string()),  # of an unknown, the class or folder it came from
        ("position", pa.int64()),  # in its shard group
        ("data", pa.large_binary()),  # null where the image is still to be read
        ("error", pa.string()),
    ]
)


def rows_per_block(images: int, batch_size: int, image_bytes: int, workers: int) -> int:
    """Whole batches, few enough images to lose little by a kill, and enough blocks to keep all actors busy.

    At least two batches where there are images enough: the second is copied while the first is computed.
    """
    fits = max(2 * batch_size, min(MAX_BLOCK_ROWS, _PIXEL_BYTES // image_bytes))
    return max(1, min(fits, images // (4 * workers)) // batch_size) * batch_size


class Wanted(Protocol):
    """Which images of a source are wanted."""

    @property
    def images(self) -> int:
        """How many."""

    @property
    def keeps_failures(self) -> bool:
        """Whether images that could not be listed belong to them."""

    def keeps(self, items: pa.Table) -> np.ndarray:
        """[n] bool, for rows with `key` and `label` as the source gives them."""


@dataclass(frozen=True)
class Lister:
    """Lists any group of a source's shards. It travels to the workers once."""

    reader: Reader
    uri: str
    labels: LabelMap | None  # None: all are unknowns
    class_names: list[str] | None
    wanted: Wanted | None  # None: all images
    staging: str
    rows: int  # per block, at most

    def blocks(self, work: Remaining) -> Iterator[Block]:
        """The images of a group that are left to do, and at the end what could not be listed.

        Raises
        ------
        InputError
            For a label that fits no class, and for data that changed since the run began.
        JobFailed
            If the store that holds the images does not answer.
        """
        start = time.perf_counter()
        for images, ends, lost in self._tables(work):
            # The listing of a shard reads its images; the time that the next stage takes does not count.
            read = images["data"].null_count < images.num_rows
            seconds = {str(Stage.READ): time.perf_counter() - start} if read else {}
            yield Block(work.group.number, images, seconds, ends, lost)
            start = time.perf_counter()

    def _tables(self, work: Remaining) -> Iterator[tuple[pa.Table, bool, list[Failure]]]:
        done = done_positions(self.staging, work)
        cutter, listed = _Cutter(self.rows), _Listed()
        bodies = self.wanted is None and not len(done)
        for shard in work.group.shards:
            listed.begin()
            far = cache(partial(self._labels_by_key, shard))
            for scan in self.reader.scan(shard, bodies):
                common_names(self.class_names, scan.class_names, self.uri)
                positions, kept = listed.add(shard, scan, self.wanted)
                if not kept.any():
                    continue
                items = scan.items.filter(pa.array(kept))
                labels, groups = self._labels(items, far if bodies else None)
                left = ~np.isin(positions[kept], done)
                at = np.flatnonzero(kept)[left]
                cutter.add(scan, at, labels[left], groups.filter(pa.array(left)), positions[at])
                for table in cutter.full():
                    yield table, False, []
        lost = self._record(work, listed)
        rest = list(cutter.rest()) or [LISTED.empty_table()]
        for table in rest[:-1]:
            yield table, False, []
        yield rest[-1], True, lost

    def _labels(
        self, items: pa.Table, far: Callable[[], dict[str, str | None]] | None
    ) -> tuple[np.ndarray, pa.ChunkedArray]:
        """The class of each image, and of the unknown ones where they came from.

        ``far`` finds labels that were not beside their image.
        """
        if self.labels is None:
            return np.full(items.num_rows, UNKNOWN, np.int32), items["label"].cast(pa.string())
        if far is not None and items["label"].null_count:
            column = pa.array([far().get(key) for key in items["key"].to_pylist()], pa.string())
            items = pa.table({"key": items["key"], "label": column})
        if items["label"].null_count:
            first = items.filter(pc.is_null(items["label"]))["key"][0].as_py()
            what = f"has images without a label, first {first!r}"
            raise InputError("data", self.uri, what, "`unknown`, if these are unknowns")
        found = self.labels.apply(items["label"])
        return found, pc.if_else(pa.array(found == UNKNOWN), items["label"].cast(pa.string()), None)

    def _labels_by_key(self, shard: Shard) -> dict[str, str | None]:
        """All labels of a shard: they may be anywhere in it, and the listing finds them."""
        found: dict[str, str | None] = {}
        for scan in self.reader.scan(shard):
            found |= zip(scan.items["key"].to_pylist(), scan.items["label"].to_pylist(), strict=True)
        return found

    def _record(self, work: Remaining, listed: _Listed) -> list[Failure]:
        """Write what the listing found; returns what could not be listed."""
        failures = listed.failures if self.wanted is None or self.wanted.keeps_failures else []
        lost = sum(failure.images for failure in failures)
        name = ListingName(work.group.number, listed.images, lost, listed.digest)
        if work.listing is not None and work.listing != name:
            problem = f"{work.group.shards[0].name or 'the folder'} has changed since the run began"
            raise InputError("data", self.uri, problem, "`overwrite=True` starts over")
        write_listing(self.staging, name, ListingRecord(listed.images, f"{listed.keys:016x}", listed.digests, failures))
        return failures


@dataclass(frozen=True)
class ListTask:
    """The listing as a stage of the stream: a row names a group, its blocks come out one after the other."""

    lister: Any  # Ray's reference to a `Lister`

    def __call__(self, row: pa.Table) -> Iterator[pa.Table]:
        import ray

        work: Remaining = pickle.loads(row["work"][0].as_py())  # of the driver
        for block in ray.get(self.lister).blocks(work):
            yield block.to_row()


def keys_digest(keys: pa.Array) -> int:
    """A digest of keys that does not depend on their order: the sum of their hashes, 64 bits."""
    return int(np.sum(hash_keys(keys), dtype=np.uint64))


@dataclass
class _Listed:
    """What the listing of a group has found so far."""

    images: int = 0  # that are wanted
    keys: int = 0
    failures: list[Failure] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    _position: int = 0
    _digest: ListingDigest = field(default_factory=ListingDigest)
    _in_shard: int = 0  # wanted or not

    def begin(self) -> None:
        """Begin another shard."""
        self._digest, self._in_shard = ListingDigest(), 0

    def add(self, shard: Shard, scan: Scan, wanted: Wanted | None) -> tuple[np.ndarray, np.ndarray]:
        """The positions of the scan's rows, and which of them are wanted."""
        items = scan.items
        self._digest.add(items)
        self.digests[shard.name] = self._digest.value()
        self._in_shard += items.num_rows
        self.failures += [failure.counted(shard, self._in_shard) for failure in scan.failures]
        positions = np.arange(self._position, self._position + items.num_rows)
        self._position += items.num_rows
        kept = np.ones(items.num_rows, bool) if wanted is None else wanted.keeps(items)
        self.images += int(kept.sum())
        if kept.any():
            self.keys = (self.keys + keys_digest(items["key"].filter(pa.array(kept)).combine_chunks())) % (1 << 64)
        return positions, kept

    @property
    def digest(self) -> str:
        """One digest of the listing of all shards, for the file's name."""
        return shards_fingerprint(self.digests)[:_NAME_DIGITS]


@dataclass
class _Cutter:
    """Takes rows in order and gives them in blocks of ``rows``."""

    rows: int
    _tables: list[pa.Table] = field(default_factory=list)
    _held: int = 0
    _bytes: int = 0

    def add(self, scan: Scan, at: np.ndarray, labels: np.ndarray, groups: pa.Array, positions: np.ndarray) -> None:
        """The rows ``at`` of a scan."""
        if not len(at):
            return
        items = scan.items.take(pa.array(at))
        images = None if scan.images is None else [scan.images[row] for row in at]
        data = [None] * len(at) if images is None else [image.data for image in images]
        errors = [None] * len(at) if images is None else [image.error for image in images]
        columns = [items[name] for name in ("key", "file", "start", "size")]
        columns += [pa.array(labels, pa.int32()), groups, pa.array(positions, pa.int64())]
        columns += [pa.array(data, pa.large_binary()), pa.array(errors, pa.string())]
        self._tables.append(pa.Table.from_arrays(columns, schema=LISTED))
        self._held += len(at)
        self._bytes += sum(len(body) for body in data if body is not None)

    def full(self) -> Iterator[pa.Table]:
        """The whole blocks there are; all rows, where their images are heavy."""
        if self._bytes > _BLOCK_BYTES:
            yield from self.rest()
        if self._held >= self.rows:
            table = pa.concat_tables(self._tables)
            whole = self._held // self.rows * self.rows
            left = table.slice(whole)
            self._tables, self._held, self._bytes = [left], left.num_rows, left["data"].nbytes
            # Taken, not sliced: a slice would carry the whole listing where it is sent.
            for start in range(0, whole, self.rows):
                yield table.take(pa.array(np.arange(start, start + self.rows)))

    def rest(self) -> Iterator[pa.Table]:
        """Everything that is left."""
        tables, self._tables, self._held, self._bytes = self._tables, [], 0, 0
        table = pa.concat_tables([LISTED.empty_table(), *tables])
        for start in range(0, table.num_rows, self.rows):
            yield table.take(pa.array(np.arange(start, min(start + self.rows, table.num_rows))))
