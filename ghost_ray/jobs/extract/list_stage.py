"""A portion → blocks of images to process, on the workers: listed, labelled, without finished images, in order.

For images that are adjacent in a shard, the bytes are included, so no byte is requested twice. A task that dies is
retried and must give the same blocks, so finished images are those that were finished when the round began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ghost_ray.config.policies import Stage
from ghost_ray.errors import InputError
from ghost_ray.files import resolve
from ghost_ray.jobs.extract.block_cutter import BlockCutter
from ghost_ray.jobs.extract.portions import Portion
from ghost_ray.jobs.extract.tally import Reporter
from ghost_ray.jobs.extract.work_files import BlockName, Record, RecordName, block_uri, write_record
from ghost_ray.sources import Failure, LabelMap, Part, Reader, Scan
from ghost_ray.sources.first_look import common_names, parts_fingerprint
from ghost_ray.sources.source import ListingDigest
from ghost_ray.store import UNKNOWN, hash_keys

_NAME_DIGITS = 16  # of a digest in a file's name


class Wanted(Protocol):
    """Which images of a source are wanted."""

    @property
    def images(self) -> int:
        """How many."""

    @property
    def keeps_failures(self) -> bool:
        """Whether images that could not be listed belong to them."""

    def keeps(self, items: pa.Table) -> np.ndarray:
        """[n] bool, for rows with `key` and `label` as the source says them."""


class Todo(NamedTuple):
    """A portion with something left to do."""

    portion: Portion
    blocks: list[BlockName]  # that were written before this round
    record: RecordName | None  # of a listing before this round
    again: bool  # whether images that could not be read get another chance


@dataclass(frozen=True)
class Lister:
    """What a worker knows to list any portion of a source."""

    reader: Reader
    uri: str
    labels: LabelMap | None  # None: all are unknowns
    class_names: list[str] | None
    wanted: Wanted | None  # None: all images
    staging: str

    def blocks(self, todo: Todo, rows: int, to: Reporter | None = None) -> Iterator[pa.Table]:
        """The images of a portion that are left to do, at most ``rows`` at a time; ``to`` is told how many there were.

        Columns: key, file, start, size, label (an index into the head), portion, place, data, error. The last two are
        null where the image is still to be read.

        Raises
        ------
        InputError
            For a label that fits no class, and for data that changed since the run began.
        JobFailed
            If the store that holds the images does not answer.
        """
        done = done_places(self.staging, todo)
        cutter, found = BlockCutter(rows), _Found()
        bodies, left_to_do = self.wanted is None and not len(done), 0
        for part in todo.portion.parts:
            found.begin()
            far = cache(partial(self._labels_by_key, part))
            for scan in self.reader.scan(part, bodies):
                common_names(self.class_names, scan.class_names, self.uri)
                places, kept = found.add(part, scan, self.wanted)
                if not kept.any():
                    continue
                labels = self._indices(scan.items.filter(pa.array(kept)), far if bodies else None)
                left = ~np.isin(places[kept], done)
                cutter.add(scan, np.flatnonzero(kept)[left], labels[left], places[kept][left], todo.portion.number)
                left_to_do += int(left.sum())
                yield from cutter.full()
        lost = self._record(todo, found)
        yield from cutter.rest()
        if to is not None:
            to.listed(todo.portion.number, left_to_do, lost)

    def _indices(self, items: pa.Table, far: Callable[[], dict[str, str | None]] | None) -> np.ndarray:
        """The classes of some images; ``far`` finds labels that were not beside their image."""
        if self.labels is None:
            return np.full(items.num_rows, UNKNOWN, np.int32)
        if far is not None and items["label"].null_count:
            column = pa.array([far().get(key) for key in items["key"].to_pylist()], pa.string())
            items = pa.table({"key": items["key"], "label": column})
        if items["label"].null_count:
            first = items.filter(pc.is_null(items["label"]))["key"][0].as_py()
            what = f"has images without a label, first {first!r}"
            raise InputError("data", self.uri, what, "`unknown`, if these are unknowns")
        return self.labels.apply(items["label"])

    def _labels_by_key(self, part: Part) -> dict[str, str | None]:
        """All labels of a part: in a shard they may be anywhere, and the listing finds them."""
        found: dict[str, str | None] = {}
        for scan in self.reader.scan(part):
            found |= zip(scan.items["key"].to_pylist(), scan.items["label"].to_pylist(), strict=True)
        return found

    def _record(self, todo: Todo, found: _Found) -> list[Failure]:
        """Write down what the listing found; returns what could not be listed."""
        failures = found.failures if self.wanted is None or self.wanted.keeps_failures else []
        lost = sum(failure.images for failure in failures)
        name = RecordName(todo.portion.number, found.images, lost, found.digest)
        if todo.record is not None and todo.record != name:
            problem = f"{todo.portion.parts[0].name or 'the folder'} has changed since the run began"
            raise InputError("data", self.uri, problem, "`overwrite=True` starts over")
        write_record(self.staging, name, Record(found.images, f"{found.keys:016x}", found.digests, failures))
        return failures


def timed(blocks: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The blocks with a column ``read_seconds``: what reading the bytes that came along took, shared among the rows.

    The time that whoever takes the blocks needs does not count.
    """
    start = time.perf_counter()
    for block in blocks:
        came = block["data"].null_count < block.num_rows
        seconds = (time.perf_counter() - start) / block.num_rows if came else 0.0
        yield block.append_column("read_seconds", pa.array(np.full(block.num_rows, seconds, np.float32)))
        start = time.perf_counter()


def done_places(staging: str, todo: Todo) -> np.ndarray:
    """The positions of a portion that are in a block; a truncated file has none."""
    tables = []
    for name in todo.blocks:
        filesystem, path = resolve(block_uri(staging, name))
        try:
            with pq.ParquetFile(path, filesystem=filesystem) as file:
                tables.append(file.read(["place", "stage"], use_threads=False))
        except (pa.ArrowInvalid, FileNotFoundError):  # which the survey removes
            continue
    if not tables:
        return np.empty(0, np.int64)
    rows = pa.concat_tables(tables)
    if todo.again:
        rows = rows.filter(pc.fill_null(pc.not_equal(rows["stage"], Stage.READ), True))
    return np.unique(rows["place"].to_numpy())


def keys_digest(keys: pa.Array) -> int:
    """A digest of keys that does not depend on their order: the sum of their hashes, 64 bits."""
    return int(np.sum(hash_keys(keys), dtype=np.uint64))


@dataclass
class _Found:
    """What the listing of a portion has found so far."""

    images: int = 0  # that are wanted
    keys: int = 0
    failures: list[Failure] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    _place: int = 0
    _digest: ListingDigest = field(default_factory=ListingDigest)
    _listed: int = 0  # of the part, wanted or not

    def begin(self) -> None:
        """A new part."""
        self._digest, self._listed = ListingDigest(), 0

    def add(self, part: Part, scan: Scan, wanted: Wanted | None) -> tuple[np.ndarray, np.ndarray]:
        """The places of the scan's rows, and which of them are wanted."""
        items = scan.items
        self._digest.add(items)
        self.digests[part.name] = self._digest.value()
        self._listed += items.num_rows
        self.failures += [failure.counted(part, self._listed) for failure in scan.failures]
        places = np.arange(self._place, self._place + items.num_rows)
        self._place += items.num_rows
        kept = np.ones(items.num_rows, bool) if wanted is None else wanted.keeps(items)
        self.images += int(kept.sum())
        if kept.any():
            self.keys = (self.keys + keys_digest(items["key"].filter(pa.array(kept)).combine_chunks())) % (1 << 64)
        return places, kept

    @property
    def digest(self) -> str:
        """One digest of the listing of all parts, for the record's name."""
        return parts_fingerprint(self.digests)[:_NAME_DIGITS]
