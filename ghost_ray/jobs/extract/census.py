"""Facts that need a complete listing: how many images there are, which labels, and which images a limit keeps.

The workers list; the driver holds the labels and, if a limit is set, as many ranks as images are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ghost_ray.cluster import map_ordered, ray_session
from ghost_ray.cluster.tasks import as_task
from ghost_ray.config import ExtractConfig
from ghost_ray.jobs.extract.blocks import ShardGroup
from ghost_ray.progress import progress
from ghost_ray.sources import Choice, LabelFacts, Lowest, Reader, Source, refuse_repeated
from ghost_ray.store import hash_keys

_RANGES = 16  # of hashes, each looked through by a task of its own


@dataclass(frozen=True)
class Census:
    """What there is in some groups of shards."""

    images: int
    labels: LabelFacts
    lowest: Lowest
    lost: int = 0  # images in damaged parts, about

    @classmethod
    def of(cls, items: pa.Table, choice: Choice | None) -> Census:
        """From rows with `key` and `label`."""
        return cls(items.num_rows, LabelFacts.of(items), Lowest() if choice is None else choice.lowest(items))

    def merged(self, other: Census, choice: Choice | None) -> Census:
        lowest = self.lowest if choice is None else choice.merged(self.lowest, other.lowest)
        labels = self.labels.merged(other.labels)
        return Census(self.images + other.images, labels, lowest, self.lost + other.lost)


def take_census(config: ExtractConfig, source: Source, groups: list[ShardGroup], choice: Choice | None) -> Census:
    """List all groups, on the cluster of ``config``."""
    found = Census(0, LabelFacts([]), Lowest())
    with ray_session(config), progress("list", len(groups), "groups of shards") as shown:
        for _, census in map_ordered(_count, groups, source.reader, choice):
            found = found.merged(census, choice)
            shown.advance()
    return found


def _count(group: ShardGroup, reader: Reader, choice: Choice | None) -> Census:
    found = Census(0, LabelFacts([]), Lowest())
    for shard in group.shards:
        listed = 0
        for scan in reader.scan(shard):
            listed += scan.items.num_rows
            lost = sum(failure.counted(shard, listed).images for failure in scan.failures)
            found = found.merged(replace(Census.of(scan.items, choice), lost=lost), choice)
    return found


def refuse_repeated_keys(source: Source, groups: list[ShardGroup]) -> None:
    """InputError if two groups name the same image; no process looks at all the keys.

    Each group sends the hashes of its keys to tasks that each check a range of hashes. Keys with the same hash are
    then compared by name.
    """
    import ray

    hashes = as_task(_hashes_by_range).options(num_returns=_RANGES)
    reader = ray.put(source.reader)
    columns = [hashes.remote(group, reader) for group in groups]
    repeated = as_task(_repeated)
    found = ray.get([repeated.remote(*[column[number] for column in columns]) for number in range(_RANGES)])
    suspects = np.concatenate(found)
    if not len(suspects):
        return
    seen: set[str] = set()
    for _, keys in map_ordered(_keys_with, groups, source.reader, suspects):
        for key in keys:
            if key in seen:
                raise refuse_repeated(key, source.uri)
            seen.add(key)


def _hashes_by_range(group: ShardGroup, reader: Reader) -> list[np.ndarray]:
    hashes = np.concatenate([hash_keys(keys) for keys in _keys(group, reader)])
    ranges = hashes >> np.uint64(60)
    return [hashes[ranges == number] for number in range(_RANGES)]


def _repeated(*parts: np.ndarray) -> np.ndarray:
    values, counts = np.unique(np.concatenate(parts), return_counts=True)
    return np.asarray(values[counts > 1])


def _keys_with(group: ShardGroup, reader: Reader, hashes: np.ndarray) -> list[str]:
    found: list[str] = []
    for keys in _keys(group, reader):
        found += keys.filter(pa.array(np.isin(hash_keys(keys), hashes))).to_pylist()
    return found


def _keys(group: ShardGroup, reader: Reader) -> list[pa.Array]:
    scans = [scan for shard in group.shards for scan in reader.scan(shard)]
    return [scan.items["key"].combine_chunks() for scan in scans]
