"""Blocks: images that travel and are written together, their files, and which of them are done.

A block is one row of the stream, from the task that lists it to its file, so that Ray Data neither splits nor joins it.
The names of the files contain everything a run needs to resume: it lists two folders and starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ghost_ray.config.limits import Stage
from ghost_ray.files import join, names_in, reaching, read_json, remove_file, resolve, write_bytes
from ghost_ray.sources import Failure, Shard, Source
from ghost_ray.store import open_rows, row_schema

# ---- groups of shards

_GROUP_IMAGES = 4096  # minimum images per group, where the shards are smaller
_GROUPS = 2048  # about the maximum; more would only be more files to keep


class ShardGroup(NamedTuple):
    """One shard, or several consecutive small ones: what one task lists.

    Its images are numbered from 0 on: the number is an image's position in the group. Which shards belong together
    depends on the source alone, so the same command finds the same groups again.
    """

    number: int
    shards: tuple[Shard, ...]


def group_shards(source: Source) -> list[ShardGroup]:
    """All shards of a source, in order."""
    weight = sum(shard.size or 1 for shard in source.shards)
    images = source.preview.images or _GROUP_IMAGES * len(source.shards)  # the preview may have found none
    enough = max(_GROUP_IMAGES, images / _GROUPS)
    groups: list[list[Shard]] = []
    held = enough
    for shard in source.shards:
        if held >= enough:
            groups.append([])
            held = 0.0
        groups[-1].append(shard)
        held += images * (shard.size or 1) / weight
    return [ShardGroup(number, tuple(group)) for number, group in enumerate(groups)]


# ---- a block on its way


@dataclass(frozen=True)
class Block:
    """Some images of a shard group, in order, on their way through the stages.

    The columns of ``images`` are those of the stage that the block comes from. What concerns the block as a whole is
    beside them, not in every row. The last block of a group, which may have no image, ends its listing.
    """

    group: int
    images: pa.Table
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    ends_listing: bool = False
    lost: list[Failure] = field(default_factory=list)  # damaged parts of the group's shards, in its last block

    def to_row(self) -> pa.Table:
        """The block as a table of one row; nothing is copied."""
        facts = {"group": self.group, "seconds": self.seconds, "ends_listing": self.ends_listing, "lost": self.lost}
        whole = self.images.combine_chunks()
        columns = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in whole.columns]
        images = pa.StructArray.from_arrays(columns, fields=list(whole.schema))
        ends = pa.array([0, len(images)], pa.int32())
        return pa.table({"facts": [json.dumps(facts)], "images": pa.ListArray.from_arrays(ends, images)})

    @staticmethod
    def from_row(row: pa.Table) -> Block:
        (column,) = row["images"].chunks
        images = column.flatten()
        facts = json.loads(row["facts"][0].as_py())
        facts["lost"] = [Failure(*failure) for failure in facts["lost"]]
        return Block(images=pa.Table.from_arrays(images.flatten(), schema=pa.schema(list(images.type))), **facts)


@dataclass(frozen=True)
class BlockStats:
    """What became of a block: what the stream ends in, and the driver adds up."""

    images: int = 0  # embedded or failed, and those in damaged parts of shards
    failures: int = 0  # of them
    examples: list[tuple[str, str, str, int]] = field(default_factory=list)  # of the first: key, stage, error, images
    by_stage: dict[str, int] = field(default_factory=dict)  # failures
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    ends_listing: bool = False

    def to_row(self) -> pa.Table:
        return pa.table({"stats": [json.dumps(asdict(self))]})

    @staticmethod
    def from_text(stats: str) -> BlockStats:
        return BlockStats(**json.loads(stats))


def over_rows(stage: type) -> type:
    """The class with the same name whose instances are called with a block as a row, and give a row."""

    def call(self: Any, row: pa.Table) -> pa.Table:
        return stage.__call__(self, Block.from_row(row)).to_row() if row.num_rows else row

    return type(stage.__name__, (stage,), {"__call__": call})


# ---- files

BLOCKS = "blocks"
LISTINGS = "listings"
_BLOCK = re.compile(r"(\d+)-(\d+)-(\d+)-(\d+)-(\w+)\.arrow")
_LISTING = re.compile(r"(\d+)-(\d+)-(\d+)-(\w+)\.json")
_EXAMPLES = 3


class BlockName(NamedTuple):
    """What the name of a block file says. The same images of the same round have the same name."""

    group: int
    position: int  # of its first row
    rows: int
    unread: int  # rows whose image could not be read
    round: str  # of which run and pass it is

    @property
    def file(self) -> str:
        return f"{self.group:06d}-{self.position:010d}-{self.rows}-{self.unread}-{self.round}.arrow"


class ListingName(NamedTuple):
    """What the name of a group's listing says."""

    group: int
    images: int  # that are to be in the store or among the failures
    lost: int  # images, about, that could not be listed
    digest: str  # of the listing

    @property
    def file(self) -> str:
        return f"{self.group:06d}-{self.images}-{self.lost}-{self.digest}.json"


@dataclass(frozen=True)
class ListingRecord:
    """What the listing of a group found."""

    images: int  # that are wanted
    keys: str  # a digest of their keys, the same in any order
    digests: dict[str, str]  # of the listing of each shard
    failures: list[Failure] = field(default_factory=list)  # what could not be listed


def block_schema(dimensions: int) -> pa.Schema:
    """A store's row, and beside it which image of the group it is and what became of it."""
    return pa.schema(
        [
            *row_schema(dimensions),
            pa.field("position", pa.int64()),
            pa.field("failed", pa.bool_()),
            pa.field("stage", pa.string()),
            pa.field("error", pa.string()),
        ]
    )


@dataclass(frozen=True)
class BlockWriter:
    """Writes the rows of a block to its file. A repeated write gives the same file."""

    schema: pa.Schema
    staging: str
    round: str

    def __call__(self, block: Block, rows: pa.Table, batch_size: int) -> BlockStats:
        """Write the rows that were computed from a block; a block without images has no file."""
        seconds = dict(block.seconds)
        if rows.num_rows:
            start = time.perf_counter()
            self._write(block.group, rows.select(self.schema.names).cast(self.schema), seconds, batch_size, start)
            seconds[Stage.WRITE] = time.perf_counter() - start
        failed = rows.filter(rows["failed"]).select(["key", "stage", "error"]).to_pylist()
        failures = [
            *((row["key"], row["stage"], row["error"], 1) for row in failed),
            *((*lost[:3], lost.images) for lost in block.lost),
        ]
        by_stage: dict[str, int] = {}
        for _, stage, _, images in failures:
            by_stage[stage] = by_stage.get(stage, 0) + images
        damaged = sum(lost.images for lost in block.lost)
        return BlockStats(
            rows.num_rows + damaged, sum(by_stage.values()), failures[:_EXAMPLES], by_stage, seconds, block.ends_listing
        )

    def _write(self, group: int, table: pa.Table, seconds: dict[str, float], batch_size: int, start: float) -> None:
        unread = pc.sum(pc.equal(table["stage"], Stage.READ)).as_py() or 0
        name = BlockName(group, table["position"][0].as_py(), table.num_rows, unread, self.round)
        with (
            reaching(self.staging, "out"),
            _whole_file(block_uri(self.staging, name)) as file,
            pa.ipc.new_file(file, self.schema) as writer,
        ):
            writer.write_table(table.combine_chunks())
            # Known when all rows are written: with an empty record batch after them.
            spent = {**seconds, Stage.WRITE: time.perf_counter() - start}
            facts = json.dumps({"seconds": spent, "batch_size": batch_size})
            writer.write_batch(pa.RecordBatch.from_pylist([], schema=self.schema), {"facts": facts})


@dataclass(frozen=True)
class BlockFile:
    """The small columns of a block file, and what concerns the block as a whole."""

    rows: pa.Table
    seconds: dict[str, float]
    batch_size: int


def read_block(staging: str, name: BlockName, columns: Sequence[str]) -> BlockFile | None:
    """Some columns of a block; None if the file is truncated, as a node that died may leave it, or gone."""
    try:
        with open_rows(block_uri(staging, name), columns) as file:
            _, metadata = file.get_batch_with_custom_metadata(file.num_record_batches - 1)
            facts = json.loads(metadata[b"facts"])
            return BlockFile(file.read_all(), facts["seconds"], facts["batch_size"])
    except (pa.ArrowInvalid, FileNotFoundError):
        return None


def block_names(staging: str) -> list[BlockName]:
    """The blocks written so far, sorted."""
    found = filter(None, map(_BLOCK.fullmatch, names_in(join(staging, BLOCKS))))
    return sorted(BlockName(int(each[1]), int(each[2]), int(each[3]), int(each[4]), each[5]) for each in found)


def blocks_by_group(staging: str) -> dict[int, list[BlockName]]:
    found: dict[int, list[BlockName]] = defaultdict(list)
    for name in block_names(staging):
        found[name.group].append(name)
    return found


def listing_names(staging: str) -> dict[int, ListingName]:
    """The listings that were finished, by group."""
    found = filter(None, map(_LISTING.fullmatch, names_in(join(staging, LISTINGS))))
    return {int(each[1]): ListingName(int(each[1]), int(each[2]), int(each[3]), each[4]) for each in found}


def block_uri(staging: str, name: BlockName) -> str:
    return join(staging, BLOCKS, name.file)


def block_files(staging: str) -> list[str]:
    """URIs of the blocks written so far, sorted."""
    return [block_uri(staging, name) for name in block_names(staging)]


def write_listing(staging: str, name: ListingName, record: ListingRecord) -> None:
    write_bytes(join(staging, LISTINGS, name.file), json.dumps(asdict(record)).encode())


def read_listing(staging: str, name: ListingName) -> ListingRecord:
    content = read_json(join(staging, LISTINGS, name.file))
    failures = [Failure(*failure) for failure in content["failures"]]
    return ListingRecord(content["images"], content["keys"], content["digests"], failures)


@contextlib.contextmanager
def _whole_file(uri: str) -> Iterator[pa.NativeFile]:
    """A file that appears only when the block ends without an error.

    An object store shows an object when it is closed; on a disk the file is written aside and renamed.
    """
    filesystem, path = resolve(uri)
    if not isinstance(filesystem, fs.LocalFileSystem):
        with filesystem.open_output_stream(path) as handle:
            yield handle
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    aside = f"{path}.{secrets.token_hex(4)}.tmp"
    try:
        with filesystem.open_output_stream(aside) as handle:
            yield handle
        os.replace(aside, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)


# ---- what is left to do


class Remaining(NamedTuple):
    """A shard group with something left to do."""

    group: ShardGroup
    blocks: list[BlockName]  # that were written before this round
    listing: ListingName | None  # of an earlier round
    retry_reads: bool  # whether images that could not be read get another chance


def remaining_work(groups: list[ShardGroup], staging: str, *, retry_reads: bool) -> tuple[list[Remaining], int]:
    """The unfinished groups, and how many images are done, from the names of files alone.

    With ``retry_reads``, what could not be read gets another chance: it may have been mended. A group with a damaged
    shard is begun anew, since the mended shard may have other images.
    """
    blocks, listings = blocks_by_group(staging), listing_names(staging)
    for damaged in [name for name in listings.values() if retry_reads and name.lost]:
        for name in blocks.pop(damaged.group, []):
            remove_file(block_uri(staging, name))
        remove_file(join(staging, LISTINGS, damaged.file))  # last, since it says that there is something to remove
        del listings[damaged.group]
    done = sum(name.rows - name.unread for names in blocks.values() for name in names)
    remaining = []
    for group in groups:
        own, listing = blocks.get(group.number, []), listings.get(group.number)
        rows, unread = sum(name.rows for name in own), sum(name.unread for name in own)
        if listing is None or rows != listing.images or (retry_reads and unread):
            remaining.append(Remaining(group, own, listing, retry_reads))
    return remaining, done


def done_positions(staging: str, work: Remaining) -> np.ndarray:
    """The positions of a group that are in a block, [n] int64; a truncated file has none."""
    files = [read_block(staging, name, ["position", "stage"]) for name in work.blocks]
    tables = [file.rows for file in files if file is not None]
    if not tables:
        return np.empty(0, np.int64)
    rows = pa.concat_tables(tables)
    if work.retry_reads:
        rows = rows.filter(pc.fill_null(pc.not_equal(rows["stage"], Stage.READ), True))
    return np.unique(rows["position"].to_numpy())
