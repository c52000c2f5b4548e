"""Random samples of rows that do not depend on how the rows were split.

Each row is ranked by a hash of its ``row_id`` and a seed; the lowest ranks are a uniform sample without replacement,
and the lowest of several parts are the lowest of the whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ranks = npt.NDArray[np.uint64]


def hash_rank(row_id: npt.NDArray[np.uint64], seed: int) -> Ranks:
    """A uniform 64-bit rank for each row and seed (the splitmix64 finaliser, a bijection of ``row_id``)."""
    with np.errstate(over="ignore"):
        x = row_id.astype(np.uint64) + np.uint64((0x9E3779B97F4A7C15 * (2 * seed + 1)) % 2**64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result: Ranks = x ^ (x >> np.uint64(31))
    return result


class RowSample:
    """Values of the rows with the lowest ranks.

    Parameters
    ----------
    owner : str
        Method that samples, for messages.
    size : int
        Minimum number of rows to keep, if there are as many.
    fraction : float, default 0
        Share of all rows to keep, where that is more than ``size``.
    seed : int, default 0
    all_below : int, default 0
        Keep all rows, where there are fewer than this many.

    Notes
    -----
    The number of rows in a fraction is known only at the end. Until then, all rows below twice the fraction of the rank
    range are kept too: from a hundred rows on, the probability that these are too few is 1e-12.
    """

    def __init__(self, owner: str, size: int, fraction: float = 0.0, seed: int = 0, all_below: int = 0) -> None:
        if size < 1 or not 0 <= fraction <= 1:
            raise ValueError(f"{owner}: size must be at least 1 and fraction in [0, 1], got {size} and {fraction}")
        self.owner, self.size, self.fraction, self.seed = owner, size, fraction, seed
        self.all_below = all_below
        self.seen = 0
        self.rank: Ranks = np.empty(0, np.uint64)
        self.values: tuple[npt.NDArray[Any], ...] = ()

    def update(self, row_id: npt.NDArray[np.uint64], *values: npt.NDArray[Any]) -> None:
        """Consider rows [B] with their values, arrays of B rows each."""
        self.seen += len(row_id)
        self._consider(hash_rank(row_id, self.seed), values)

    def merge(self, other: RowSample) -> None:
        """Consider what another sample kept."""
        self.seen += other.seen
        if other.values:
            self._consider(other.rank, other.values)

    def _consider(self, rank: Ranks, values: tuple[npt.NDArray[Any], ...]) -> None:
        chosen = self._lowest(rank, self.size)
        rank, values = rank[chosen], tuple(v[chosen] for v in values)
        if not self.values:
            self.rank, self.values = rank, values
            return
        rank = np.concatenate([self.rank, rank])
        chosen = self._lowest(rank, self.size)
        self.rank = rank[chosen]
        self.values = tuple(np.concatenate([a, b])[chosen] for a, b in zip(self.values, values, strict=True))

    def _lowest(self, rank: Ranks, size: int) -> npt.NDArray[np.intp]:
        order = np.argsort(rank, kind="stable")
        if self.seen < self.all_below:
            return order
        below = int(np.sum(rank < np.uint64(min(2 * self.fraction * 2.0**64, 2**64 - 1))))
        return order[: max(size, below)]

    def finish(self) -> tuple[npt.NDArray[Any], ...]:
        """The sampled values in order of rank."""
        if not self.values:
            raise ValueError(f"{self.owner}: no labelled training rows to sample from")
        count = max(self.size, int(np.ceil(self.fraction * self.seen)))
        if self.seen < self.all_below:
            count = self.seen
        return tuple(v[:count] for v in self.values)
