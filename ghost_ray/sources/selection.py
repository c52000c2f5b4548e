"""A seeded sample of a source that does not depend on how, where or in what pieces it was listed.

Each image has a rank, a hash of seed and key; the lowest ranks are kept. The choice is uniform, the same on every
machine and for every order of listing, and a larger limit adds to what a smaller one chose. To choose from a source in
parts, the lowest ranks of each part are merged; each part then finds its own chosen images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ALL = ""  # the one class that all images are in where classes do not matter
_UNLABELLED = None  # images without a label count as one class


@dataclass(frozen=True)
class Choice:
    """How many images are wanted: `per_class` of each label, then `limit` of all."""

    limit: int | None
    per_class: int | None
    seed: int

    def lowest(self, items: pa.Table) -> Lowest:
        """The ranks of `items` (with columns `key` and `label`) that may be among those kept."""
        ranks = _ranks(items["key"].to_pylist(), self.seed)
        if self.per_class is None:
            return Lowest({_ALL: np.sort(ranks)[: self.limit]})
        names, codes = _classes(items)
        found = {}
        for code, name in enumerate(names):
            own = ranks[codes == code]
            if len(own):
                found[name] = np.sort(own)[: self.per_class]
        return Lowest(found)

    def merged(self, one: Lowest, other: Lowest) -> Lowest:
        """The lowest ranks of both."""
        most = self.limit if self.per_class is None else self.per_class
        joined = dict(one.ranks)
        for name, ranks in other.ranks.items():
            joined[name] = np.sort(np.concatenate([joined[name], ranks]))[:most] if name in joined else ranks
        return Lowest(joined)

    def chosen(self, lowest: Lowest) -> Chosen:
        """The choice, from the lowest ranks of all parts."""
        every = np.sort(np.concatenate([np.empty(0, np.uint64), *lowest.ranks.values()]))
        kept = every if self.limit is None else every[: self.limit]
        bounds = {name: int(ranks[-1]) + 1 if len(ranks) else 0 for name, ranks in lowest.ranks.items()}
        return Chosen(self, bounds, int(kept[-1]) + 1 if len(kept) else 0, len(kept))


@dataclass(frozen=True)
class Lowest:
    """The lowest ranks found so far, sorted, by class."""

    ranks: Mapping[str | None, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    """Which images are kept: those whose rank is below the bound of their class and below that of all."""

    choice: Choice
    bounds: Mapping[str | None, int]  # by class
    bound: int
    images: int  # how many that are
    keeps_failures = False  # what could not be listed was not chosen

    def keeps(self, items: pa.Table) -> np.ndarray:
        """[n] bool: whether each of `items` is kept."""
        ranks = _ranks(items["key"].to_pylist(), self.choice.seed)
        kept = _below(ranks, np.array([self.bound], object), np.zeros(len(ranks), np.int64))
        if self.choice.per_class is None:
            return kept
        names, codes = _classes(items)
        own = _below(ranks, np.array([self.bounds.get(name, 0) for name in names], object), codes)
        return np.asarray(kept & own)


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


def _classes(items: pa.Table) -> tuple[list[str | None], np.ndarray]:
    """The distinct labels, and for each row the index of its label."""
    labels = items["label"].combine_chunks()
    if not pa.types.is_dictionary(labels.type):
        labels = labels.dictionary_encode()
    names: list[str | None] = [*labels.dictionary.to_pylist(), _UNLABELLED]
    codes: np.ndarray = labels.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)
    return names, codes


def _below(ranks: np.ndarray, bounds: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Whether each rank is below its bound, which may be 2⁶⁴ and 0."""
    last = np.array([max(bound - 1, 0) for bound in bounds], np.uint64)
    some = np.array([bound > 0 for bound in bounds], bool)
    found: np.ndarray = some[codes] & (ranks <= last[codes])
    return found


def _ranks(keys: list[str], seed: int) -> np.ndarray:
    salt = seed.to_bytes(16, "little", signed=True)
    digests = (hashlib.blake2b(key.encode(), digest_size=8, salt=salt).digest() for key in keys)
    return np.frombuffer(b"".join(digests), "<u8")
