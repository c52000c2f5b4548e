"""A seeded sample of a source that does not depend on how, where or in what shards it was listed.

Each image has a rank, a hash of seed and key; the lowest ranks are kept. The choice is uniform, the same on every
machine and for every order of listing, and a larger limit adds to what a smaller one chose. To choose from a source in
shards, the lowest ranks of each shard are merged; each shard then finds its own chosen images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Choice:
    """How many images are wanted: `per_class` of each label, then `limit` of all."""

    limit: int | None
    per_class: int | None
    seed: int

    def lowest(self, items: pa.Table) -> Lowest:
        """The ranks of `items` (with columns `key` and `label`) that may be among those kept."""
        ranks = self.ranks(items)
        names, codes = self.classes(items)
        own = {name: ranks[codes == code] for code, name in enumerate(names)}
        return Lowest({name: self._first(found) for name, found in own.items() if len(found)})

    def merged(self, one: Lowest, other: Lowest) -> Lowest:
        """The lowest ranks of both."""
        joined = dict(one.ranks)
        for name, ranks in other.ranks.items():
            joined[name] = self._first(np.concatenate([joined[name], ranks])) if name in joined else ranks
        return Lowest(joined)

    def chosen(self, lowest: Lowest) -> Chosen:
        """The choice, from the lowest ranks of all shards."""
        kept = np.sort(np.concatenate([np.empty(0, np.uint64), *lowest.ranks.values()]))[: self.limit]
        highest = {name: min(ranks[-1], kept[-1]) for name, ranks in lowest.ranks.items()} if len(kept) else {}
        return Chosen(self, highest, len(kept))

    def ranks(self, items: pa.Table) -> np.ndarray:
        """[n] uint64."""
        salt = self.seed.to_bytes(16, "little", signed=True)
        digests = (hashlib.blake2b(key.encode(), digest_size=8, salt=salt).digest() for key in items["key"].to_pylist())
        return np.frombuffer(b"".join(digests), "<u8")

    def classes(self, items: pa.Table) -> tuple[list[str | None], np.ndarray]:
        """The distinct labels, and for each row the index of its label; one for all where classes do not matter."""
        if self.per_class is None:
            return [None], np.zeros(items.num_rows, np.int32)
        labels = items["label"].combine_chunks()
        if not pa.types.is_dictionary(labels.type):
            labels = labels.dictionary_encode()
        names: list[str | None] = [*labels.dictionary.to_pylist(), None]  # images without a label are one class
        codes: np.ndarray = labels.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)
        return names, codes

    def _first(self, ranks: np.ndarray) -> np.ndarray:
        return np.sort(ranks)[: self.limit if self.per_class is None else self.per_class]


@dataclass(frozen=True)
class Lowest:
    """The lowest ranks found so far, sorted, by class; at least one of each class."""

    ranks: Mapping[str | None, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    """Which images are kept: those whose rank is not above the highest of their class."""

    choice: Choice
    highest: Mapping[str | None, np.uint64]  # by class
    images: int  # how many that are
    keeps_failures = False  # what could not be listed was not chosen

    def keeps(self, items: pa.Table) -> np.ndarray:
        """[n] bool: whether each of `items` is kept."""
        names, codes = self.choice.classes(items)
        some = np.array([name in self.highest for name in names], bool)
        highest = np.array([self.highest.get(name, 0) for name in names], np.uint64)
        return np.asarray(some[codes] & (self.choice.ranks(items) <= highest[codes]))


@dataclass(frozen=True)
class OnlyKeys:
    """The images with these keys."""

    keys: pa.Array
    keeps_failures = True

    @property
    def images(self) -> int:
        return len(self.keys)

    def keeps(self, items: pa.Table) -> np.ndarray:
        """[n] bool: whether each of `items` is one of them."""
        return np.asarray(pc.is_in(items["key"].combine_chunks(), self.keys))


def select(items: pa.Table, limit: int | None = None, per_class: int | None = None, seed: int = 0) -> pa.Table:
    """Keep `per_class` images of each label, then `limit` of all, in their order.

    Parameters
    ----------
    items : Table
        With columns `key` and `label`; images without a label count as one class.
    """
    if limit is None and per_class is None:
        return items
    choice = Choice(limit, per_class, seed)
    return items.filter(pa.array(choice.chosen(choice.lowest(items)).keeps(items)))
