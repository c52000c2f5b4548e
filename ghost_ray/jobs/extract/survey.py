"""Is every image there exactly once? Asked portion by portion, on the workers: counts and digests, no list of keys."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ghost_ray.cluster import map_ordered
from ghost_ray.config.policies import Stage
from ghost_ray.errors import JobFailed
from ghost_ray.files import resolve
from ghost_ray.jobs.extract.list_stage import Todo, keys_digest
from ghost_ray.jobs.extract.portions import Portion
from ghost_ray.jobs.extract.work_files import (
    BlockName,
    RecordName,
    block_names,
    block_uri,
    read_record,
    record_names,
)
from ghost_ray.jobs.extract.write_stage import BLOCK_STAGES, WRITE_SECONDS
from ghost_ray.sources.first_look import parts_fingerprint
from ghost_ray.store.layout import FAILURES_SCHEMA

_SECONDS = [f"{name}_seconds" for name in BLOCK_STAGES]
_FACTS = ["key", "place", "failed", "stage", "error", "batch_size", *_SECONDS]


class _Files(NamedTuple):
    """What was written of a portion."""

    portion: Portion
    blocks: list[BlockName]
    record: RecordName | None


@dataclass
class Outcome:
    """The outcome of every image, without the embeddings, for one portion or several."""

    listed: int = 0  # images that are wanted
    lost: int = 0  # images in damaged parts, about
    failed: int = 0  # of the listed ones
    missing: int = 0  # images without a row
    failures: pa.Table = field(default_factory=FAILURES_SCHEMA.empty_table)  # a row for each image or damaged part
    seconds: dict[str, float] = field(default_factory=dict)  # in each stage, in all runs that the blocks come from
    batch_size: int | None = None  # the smallest that a block was computed in
    digests: dict[str, str] = field(default_factory=dict)  # of the listing of each part
    left: list[Todo] = field(default_factory=list)  # portions that are not complete

    @property
    def images(self) -> int:
        """All there are, with those that could not be listed."""
        return self.listed + self.lost

    @property
    def without_row(self) -> int:
        """Images that will not be in the store."""
        return self.failed + self.lost

    @property
    def fingerprint(self) -> str:
        """Of the listing of all parts."""
        return parts_fingerprint(self.digests)

    def add(self, other: Outcome) -> None:
        self.listed += other.listed
        self.lost += other.lost
        self.failed += other.failed
        self.missing += other.missing
        self.failures = pa.concat_tables([self.failures, other.failures])
        for stage, value in other.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + value
        sizes = [size for size in (self.batch_size, other.batch_size) if size]
        self.batch_size = min(sizes, default=None)
        self.digests |= other.digests
        self.left += other.left


def survey(portions: list[Portion], staging: str) -> Outcome:
    """Look through all that was written.

    Raises
    ------
    JobFailed
        If the rows of a portion do not match the listed images.
    """
    blocks: dict[int, list[BlockName]] = defaultdict(list)
    for name in block_names(staging):
        blocks[name.portion].append(name)
    records = record_names(staging)
    files = [_Files(each, blocks[each.number], records.get(each.number)) for each in portions]
    whole = Outcome()
    for _, found in map_ordered(_look, files, staging):
        whole.add(found)
    whole.failures = whole.failures.combine_chunks().sort_by("key")
    return whole


def _look(files: _Files, staging: str) -> Outcome:
    found = Outcome()
    tables = [table for table in (_read(staging, name) for name in files.blocks) if table is not None]
    for table in tables:
        for stage, column in zip(BLOCK_STAGES, _SECONDS, strict=True):
            found.seconds[stage] = found.seconds.get(stage, 0.0) + float(pc.sum(table[column]).as_py() or 0)
        written = float(table.schema.metadata[WRITE_SECONDS.encode()])
        found.seconds[Stage.WRITE] = found.seconds.get(Stage.WRITE, 0.0) + written
    rows = _each_place_once(pa.concat_tables(tables)) if tables else None
    todo = Todo(files.portion, files.blocks, files.record, False)
    if files.record is None:
        found.missing, found.left = 1, [todo]  # how many is not known before it is listed
        return found
    record = read_record(staging, files.record)
    count = 0 if rows is None else rows.num_rows
    found.listed, found.digests = record.images, record.digests
    found.lost = sum(failure.images for failure in record.failures)
    found.missing = max(0, record.images - count)
    keys = 0 if rows is None else keys_digest(rows["key"].combine_chunks())
    if count > record.images or (count == record.images and f"{keys:016x}" != record.keys):
        name = files.portion.parts[0].name
        raise JobFailed(f"the rows of {name!r} do not match the images listed there — `overwrite=True` starts over")
    found.left = [todo] if found.missing else []
    tables = [pa.Table.from_pylist([failure._asdict() for failure in record.failures], schema=FAILURES_SCHEMA)]
    if rows is not None:
        tables.append(rows.filter(rows["failed"]).select(FAILURES_SCHEMA.names).cast(FAILURES_SCHEMA))
        found.failed = tables[-1].num_rows
        sizes = rows["batch_size"].filter(pc.greater(rows["batch_size"], 0))
        found.batch_size = pc.min(sizes).as_py()
    found.failures = pa.concat_tables(tables)
    return found


def _each_place_once(rows: pa.Table) -> pa.Table:
    """The best row of each image: an embedded one before a failed one."""
    places, failed = rows["place"].to_numpy(), rows["failed"].to_numpy()
    order = np.lexsort((failed, places))
    first = np.ones(len(order), bool)
    first[1:] = places[order][1:] != places[order][:-1]
    return rows.take(pa.array(order[first]))


def _read(staging: str, name: BlockName) -> pa.Table | None:
    """The small columns of a block. A truncated file is removed: its images are computed again."""
    filesystem, path = resolve(block_uri(staging, name))
    try:
        with pq.ParquetFile(path, filesystem=filesystem) as file:
            table = file.read(_FACTS, use_threads=False)
            return table.replace_schema_metadata(file.metadata.metadata)
    except pa.ArrowInvalid:
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(path)
        return None
