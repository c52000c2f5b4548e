"""From finished blocks to a store: is every image there exactly once, failures apart, rows clustered, manifest last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from ghost_ray.checks import LabelCounts, of_set
from ghost_ray.cluster import map_ordered
from ghost_ray.cluster.check_sample import look_at
from ghost_ray.cluster.sort import arrange
from ghost_ray.config import ExtractConfig
from ghost_ray.errors import JobFailed
from ghost_ray.files import join, remove_file, remove_tree
from ghost_ray.files.manifest import provenance
from ghost_ray.jobs.extract.blocks import (
    BlockName,
    ListingName,
    Remaining,
    ShardGroup,
    block_files,
    block_uri,
    blocks_by_group,
    listing_names,
    read_block,
    read_listing,
)
from ghost_ray.jobs.extract.listing import keys_digest
from ghost_ray.jobs.extract.plan import Plan
from ghost_ray.jobs.extract.resume import remove_work
from ghost_ray.sources import shards_fingerprint
from ghost_ray.store import (
    FAILURES_SCHEMA,
    Store,
    StoreManifest,
    finish_store,
    row_schema,
    write_failures,
    write_head,
)

# ---- integrity: counts and digests, group by group, on the workers; no list of keys

_COLUMNS = ["key", "position", "failed", "stage", "error"]


@dataclass
class Outcome:
    """The outcome of every image, without the embeddings, for one group of shards or several."""

    listed: int = 0  # images that are wanted
    lost: int = 0  # images in damaged parts of shards, about
    failed: int = 0  # of the listed ones
    missing: int = 0  # images without a row
    failures: pa.Table = field(default_factory=FAILURES_SCHEMA.empty_table)  # a row for each image or damaged part
    seconds: dict[str, float] = field(default_factory=dict)  # in each stage, in all runs that the blocks come from
    batch_size: int | None = None  # the smallest that a block was computed in
    digests: dict[str, str] = field(default_factory=dict)  # of the listing of each shard
    remaining: list[Remaining] = field(default_factory=list)  # groups that are not complete

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
        """Of the listing of all shards."""
        return shards_fingerprint(self.digests)

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
        self.remaining += other.remaining


class _Written(NamedTuple):
    """What was written of a group."""

    group: ShardGroup
    blocks: list[BlockName]
    listing: ListingName | None


def check_blocks(groups: list[ShardGroup], staging: str) -> Outcome:
    """Read the small columns of all that was written.

    Raises
    ------
    JobFailed
        If the rows of a group do not match the listed images.
    """
    blocks, listings = blocks_by_group(staging), listing_names(staging)
    written = [_Written(group, blocks.get(group.number, []), listings.get(group.number)) for group in groups]
    whole = Outcome()
    for _, found in map_ordered(_check_group, written, staging):
        whole.add(found)
    whole.failures = whole.failures.combine_chunks().sort_by("key")
    return whole


def _check_group(written: _Written, staging: str) -> Outcome:
    found, tables = Outcome(), []
    for name in written.blocks:
        file = read_block(staging, name, _COLUMNS)
        if file is None:  # truncated: its images are computed again
            remove_file(block_uri(staging, name))
            continue
        tables.append(file.rows)
        found.add(Outcome(seconds=file.seconds, batch_size=file.batch_size or None))
    rows = _each_position_once(pa.concat_tables(tables)) if tables else None
    remaining = Remaining(written.group, written.blocks, written.listing, False)
    if written.listing is None:
        found.missing, found.remaining = 1, [remaining]  # how many is not known before it is listed
        return found
    record = read_listing(staging, written.listing)
    count = 0 if rows is None else rows.num_rows
    found.listed, found.digests = record.images, record.digests
    found.lost = sum(failure.images for failure in record.failures)
    found.missing = max(0, record.images - count)
    keys = 0 if rows is None else keys_digest(rows["key"].combine_chunks())
    if count > record.images or (count == record.images and f"{keys:016x}" != record.keys):
        first = written.group.shards[0].name
        raise JobFailed(f"the rows of {first!r} do not match the images listed there — `overwrite=True` starts over")
    found.remaining = [remaining] if found.missing else []
    failures = [pa.Table.from_pylist([failure._asdict() for failure in record.failures], schema=FAILURES_SCHEMA)]
    if rows is not None:
        failures.append(rows.filter(rows["failed"]).select(FAILURES_SCHEMA.names).cast(FAILURES_SCHEMA))
        found.failed = failures[-1].num_rows
    found.failures = pa.concat_tables(failures)
    return found


def _each_position_once(rows: pa.Table) -> pa.Table:
    """The best row of each image: an embedded one before a failed one."""
    positions, failed = rows["position"].to_numpy(), rows["failed"].to_numpy()
    order = np.lexsort((failed, positions))
    first = np.ones(len(order), bool)
    first[1:] = positions[order][1:] != positions[order][:-1]
    return rows.take(pa.array(order[first]))


# ---- the store


def commit(config: ExtractConfig, plan: Plan, staging: str, outcome: Outcome) -> None:
    """Write the store beside the blocks it is made of, the manifest last, and then remove the blocks.

    Raises
    ------
    JobFailed
        If rows and failures do not add up to what was listed.
    """
    network, data = plan.network, plan.data
    # A choice of images does not depend on what could not be listed.
    found = outcome.images if plan.wanted is None else outcome.listed
    if plan.exact and found != plan.images:
        _refuse(f"{plan.images:,} images were listed at first, {found:,} when they were read: the data changed")
    remove_tree(join(staging, "rows"))  # of a commit that was killed
    files = arrange(block_files(staging), staging, row_schema(network.dimensions), network.classes)
    rows = sum(file.rows for file in files)
    if rows + outcome.without_row != outcome.images:
        _refuse(f"{rows:,} rows and {outcome.without_row:,} failures are not the {outcome.images:,} images listed")
    write_failures(staging, outcome.failures)
    write_head(staging, plan.head)
    manifest = StoreManifest(
        **provenance(config),
        network=network,
        data=[data if data.fingerprint else data.model_copy(update={"fingerprint": outcome.fingerprint})],
        rows=rows,
        layout="clustered",
        order="hash",
        class_names=plan.class_names,
        has_head=True,
        failures=outcome.without_row,
        seconds={name: round(value, 3) for name, value in outcome.seconds.items()},
        batch_size=outcome.batch_size,
    )
    looked_at = look_at(Store(staging, manifest, files))
    images = manifest.rows + manifest.failures
    notes = [*accuracy_notes(network.name, images, looked_at.labels, network.classes), *of_set(looked_at)]
    finish_store(staging, manifest.model_copy(update={"notes": notes, "accuracy": looked_at.labels.accuracy}), files)
    remove_work(staging)


def _refuse(problem: str) -> NoReturn:
    raise JobFailed(f"{problem}; no store was published — run the same command again")


# ---- the accuracy beside the one that is published for the network

_VALIDATION_IMAGES, _VALIDATION_CLASSES = 50_000, 1000  # of ImageNet: fifty images per class
_TOLERANCE = 0.005  # another decoder or resampler moves a few images, not hundreds


def accuracy_notes(name: str, images: int, labels: LabelCounts, classes: int) -> list[str]:
    """A sentence if the data look like ImageNet's validation set and the network's accuracy on it is published.

    Parameters
    ----------
    images : int
        How many there were, those that failed included.
    """
    known, accuracy = labels.known(), labels.accuracy
    if accuracy is None or (images, classes) != (_VALIDATION_IMAGES, _VALIDATION_CLASSES):
        return []
    if np.bincount(known.label, known.n).max() > _VALIDATION_IMAGES // _VALIDATION_CLASSES:
        return []
    from ghost_ray.backbone import published_accuracy  # imports torch

    published = published_accuracy(name)
    if published is None:
        return []
    note = (
        f"accuracy {100 * accuracy:.2f} % on what looks like ImageNet's validation set; "
        f"published for {name}: {100 * published:.2f} %, {100 * (accuracy - published):+.2f} points"
    )
    if abs(accuracy - published) > _TOLERANCE:
        note += "; more than 0.5 points off: check the weights, the labels and the images"
    return [note]
