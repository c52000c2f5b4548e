"""Rows that two sets have in common, found by their features."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ghost_ray.rows import Ints, Singles, chunks

# The same picture in another batch may differ by this much, relative to the largest feature of its row.
TOLERANCE = 3e-5
_PROJECTIONS = 8
_SEED = 0
_ROWS, _PAIRS = 256, 4096  # taken at a time


class TwinSearch:
    """Looks for twins of some rows [n, D] in other rows, a batch at a time.

    Rows are compared by a few random projections first, and then, where these agree, feature by feature. A row that its
    own set holds twice, or whose features are all the same, is ignored.
    """

    def __init__(self, rows: Singles) -> None:
        self._rows = rows
        self._reach = TOLERANCE * np.abs(rows).max(axis=1, initial=0)
        self._projected = _project(rows)
        self.found: npt.NDArray[np.bool_] = np.zeros(len(rows), bool)
        self._telling = np.ptp(rows, axis=1) > 0 if rows.size else self.found.copy()
        for mine, other in self._pairs(rows):
            self._telling[mine[mine != other]] = False

    @property
    def rows(self) -> int:
        """The number of rows to find twins of."""
        return int(self._telling.sum())

    def look_in(self, others: Singles) -> None:
        """Mark the rows that have a twin among ``others`` [m, D]."""
        for mine, _ in self._pairs(others):
            self.found[mine] = True

    def _pairs(self, others: Singles) -> Iterator[tuple[Ints, Ints]]:
        """Positions in the rows and in ``others`` of rows that are twins, some at a time."""
        projected = _project(others)
        order = np.argsort(projected[:, 0], kind="stable")
        places = projected[order, 0]
        # |p − q|² ≤ D · reach², since the directions are orthonormal.
        reach = np.sqrt(np.float32(self._rows.shape[1])) * self._reach
        telling = np.flatnonzero(self._telling)
        for part in chunks(len(telling), _ROWS):
            here = telling[part]
            start = np.searchsorted(places, self._projected[here, 0] - reach[here])
            count = np.searchsorted(places, self._projected[here, 0] + reach[here], side="right") - start
            mine = np.repeat(here, count)
            ends = np.cumsum(count)
            other = order[np.arange(len(mine)) + np.repeat(start - (ends - count), count)]
            near = (np.abs(self._projected[mine] - projected[other]) <= reach[mine, None]).all(axis=1)
            mine, other = mine[near], other[near]
            for some in chunks(len(mine), _PAIRS):
                away = np.abs(self._rows[mine[some]] - others[other[some]]).max(axis=1, initial=0)
                same = away <= self._reach[mine[some]]
                yield mine[some][same], other[some][same]


def _project(rows: Singles) -> Singles:
    projected: Singles = rows @ _directions(rows.shape[1])
    return projected


@functools.cache
def _directions(dimensions: int) -> Singles:
    """A few orthonormal directions, [D, at most 8]; always the same."""
    drawn = np.random.default_rng(_SEED).standard_normal((dimensions, min(_PROJECTIONS, dimensions)))
    directions: Singles = np.linalg.qr(drawn)[0].astype(np.float32)
    return directions
