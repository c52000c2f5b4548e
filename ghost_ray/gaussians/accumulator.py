"""Count, mean and spread of every class, in one pass and in parts that merge.

Only ``count``, ``mean`` and ``M2`` (the sum of squared deviations from the mean) are kept, in float64. Parts are
combined by the pairwise update of Chan, Golub and LeVeque, "Algorithms for computing the sample variance", The
American Statistician 37 (1983), which stays accurate where Σx² − n·mean² loses all digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ghost_ray.compiled import compiled, read_only
from ghost_ray.gaussians.fitted import Gaussians, as_embedding

_BLOCK_CELLS = 1 << 20  # of the Gaussians that are made at a time
_BLOCK_ROWS = 1024  # bounds the rounding of one block, see _take_moments; merging blocks costs next to nothing


@dataclass(eq=False)
class Accumulator:
    """What is known so far of the classes first_class, first_class + 1, …

    The result depends on the rows and on the order of calls alone, never on time or on the number of threads. Two
    orders differ by rounding; counts, and dimensions that are constant, come out exactly.
    """

    count: NDArray[np.int64]  # [C]
    mean: NDArray[np.float64]  # [C, D]
    m2: NDArray[np.float64]  # [C, D], Σ (x − mean)²
    first_class: int = 0

    @classmethod
    def empty(cls, classes: int, dimensions: int, first_class: int = 0) -> Accumulator:
        """Start with no samples of `classes` classes, numbered from `first_class`."""
        return cls(
            np.zeros(classes, dtype=np.int64),
            np.zeros((classes, dimensions)),
            np.zeros((classes, dimensions)),
            first_class,
        )

    @property
    def stop_class(self) -> int:
        """One more than the last class covered."""
        return self.first_class + len(self.count)

    def update(self, embedding: NDArray[Any], label: NDArray[Any], where: NDArray[np.bool_] | None = None) -> None:
        """Add a batch of samples.

        Fastest if the rows of a class are contiguous, but any order works.

        Parameters
        ----------
        embedding : array of shape [B, D], float32 or float64
        label : array of shape [B], integer
            Classes covered by this accumulator, where `where` is set.
        where : array of shape [B], bool, default=None
            The rows to add, by default all. Cheaper than selecting them beforehand: nothing is copied.

        Raises
        ------
        ValueError
            If shapes do not match, a label is out of range, or a value is NaN, infinite, or so large that its
            square is. The accumulator may then hold part of the batch and must be discarded.
        """
        embedding = as_embedding(embedding, self.mean.shape[1])
        label = np.asarray(label)
        if label.shape != embedding.shape[:1] or label.dtype.kind not in "iu":
            raise ValueError(f"label must be [{len(embedding)}] integers, got {label.shape} {label.dtype}")
        label = label.astype(np.int64, copy=False)
        order = _grouped_rows(label, where)
        if not len(order):
            return
        grouped = label[order]
        if grouped[0] < self.first_class or grouped[-1] >= self.stop_class:
            row = order[0] if grouped[0] < self.first_class else order[-1]
            raise ValueError(
                f"label {label[row]} in row {row} is outside the classes {self.first_class} … {self.stop_class - 1}"
            )
        starts = np.concatenate(([0], np.flatnonzero(np.diff(grouped)) + 1, [len(order)]))
        classes = grouped[starts[:-1]] - self.first_class
        self._own_arrays()
        bad = _add_groups(embedding, order, starts, classes, self.count, self.mean, self.m2)
        if bad >= 0:
            rows = order[starts[bad] : starts[bad + 1]]
            infinite = rows[~np.isfinite(embedding[rows]).all(axis=1)]
            if len(infinite):
                raise ValueError(f"the embedding in row {infinite.min()} holds NaN or infinity")
            raise ValueError(f"the embeddings of class {label[rows[0]]} are too large to square")

    def merge(self, other: Accumulator) -> None:
        """Add all that `other` has seen, which is left as it is.

        Ranges of classes may differ; this one grows to cover both. Associative up to rounding, and an empty
        accumulator changes nothing at all.
        """
        if other.mean.shape[1] != self.mean.shape[1]:
            raise ValueError(
                f"cannot merge {other.mean.shape[1]} dimensions into {self.mean.shape[1]}: not of one network"
            )
        self._own_arrays()
        self._cover(other.first_class, other.stop_class)
        first = other.first_class - self.first_class
        here = slice(first, first + len(other.count))
        _merge_classes(
            self.count[here],
            self.mean[here],
            self.m2[here],
            read_only(other.count),
            read_only(other.mean),
            read_only(other.m2),
        )

    def finish(self) -> Gaussians:
        """Return the Gaussians of all classes covered; the first row is `first_class`."""
        return self._finish(slice(None))

    def finish_in_blocks(self) -> Iterator[Gaussians]:
        """Yield the Gaussians of all classes covered, some classes at a time: all of 21,841 take 224 MB."""
        step = max(1, _BLOCK_CELLS // self.mean.shape[1])
        for start in range(0, len(self.count), step):
            yield self._finish(slice(start, start + step))

    def _finish(self, classes: slice) -> Gaussians:
        count, means, m2 = self.count[classes], self.mean[classes], self.m2[classes]
        largest = float(np.finfo(np.float32).max)
        mean = np.zeros(means.shape, dtype=np.float32)
        std = np.zeros_like(mean)
        # By row: float64 temporaries of the whole would double the memory of 21,841 classes.
        for row in np.flatnonzero(count >= 2):
            mean[row] = np.clip(means[row], -largest, largest)
            std[row] = np.minimum(np.sqrt(m2[row] / (count[row] - 1)), largest)
        return Gaussians(mean, std, count.copy())

    def _cover(self, first: int, stop: int) -> None:
        before = max(self.first_class - first, 0)
        after = max(stop - self.stop_class, 0)
        if before or after:
            for name in ("count", "mean", "m2"):
                if before or not self._extend(name, after):
                    array = getattr(self, name)
                    setattr(self, name, np.pad(array, [(before, after), *([(0, 0)] * (array.ndim - 1))]))
            self.first_class -= before

    def _extend(self, name: str, classes: int) -> bool:
        """Append zeros to an array in place; return whether that was possible: only without other references to it.

        A large array is then moved and not copied: two copies of 21,841 classes are a gigabyte.
        """
        # No variable for the array: it would be another reference.
        shape = (len(getattr(self, name)) + classes, *getattr(self, name).shape[1:])
        try:
            getattr(self, name).resize(shape)
        except ValueError:
            return False
        return True

    def _own_arrays(self) -> None:
        # Arrays out of an object store are shared and read-only; views cannot grow.
        if not all(array.flags.writeable and array.flags.owndata for array in (self.count, self.mean, self.m2)):
            self.count, self.mean, self.m2 = self.count.copy(), self.mean.copy(), self.m2.copy()


def _grouped_rows(label: NDArray[Any], where: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Return the rows to add, those of a class together and in their own order."""
    rows = np.arange(len(label)) if where is None else np.flatnonzero(where)
    chosen = label if where is None else label[rows]
    if (chosen[1:] >= chosen[:-1]).all():
        return rows
    return rows[np.argsort(chosen, kind="stable")]


@compiled()
def _add_groups(
    embedding: NDArray[Any],
    order: NDArray[np.int64],
    starts: NDArray[np.int64],
    classes: NDArray[np.int64],
    count: NDArray[np.int64],
    mean: NDArray[np.float64],
    m2: NDArray[np.float64],
) -> int:
    """Add the rows order[starts[g]:starts[g + 1]] to classes[g]; return the first g not finite, or −1."""
    block_mean = np.empty(embedding.shape[1])
    block_m2 = np.empty(embedding.shape[1])
    for group in range(len(classes)):
        for begin in range(starts[group], starts[group + 1], _BLOCK_ROWS):
            rows = order[begin : min(begin + _BLOCK_ROWS, starts[group + 1])]
            if not _take_moments(embedding, rows, block_mean, block_m2):
                return group
            _merge_class(count, mean, m2, classes[group], len(rows), block_mean, block_m2)
    return -1


@compiled()
def _take_moments(
    embedding: NDArray[Any], rows: NDArray[np.int64], mean: NDArray[np.float64], m2: NDArray[np.float64]
) -> bool:
    """Write mean and M2 of some rows; return whether all is finite.

    One pass over memory: deviations are taken from the first row. That being one of the n, Σ(x − x₀)² is at most
    n times the sum around the mean, so the correction loses at most log₁₀ n digits whatever the offset, and equal
    values give exactly 0.
    """
    dimensions = embedding.shape[1]
    origin = embedding[rows[0]]
    total, squares = mean, m2  # the outputs serve as sums until the end
    for d in range(dimensions):
        total[d] = 0.0
        squares[d] = 0.0
    whole = len(rows) - len(rows) % 4
    # Four rows at a time, because reading and writing the two sums costs more than the arithmetic.
    for i in range(0, whole, 4):
        x0 = embedding[rows[i]]
        x1 = embedding[rows[i + 1]]
        x2 = embedding[rows[i + 2]]
        x3 = embedding[rows[i + 3]]
        for d in range(dimensions):
            o = np.float64(origin[d])
            y0 = x0[d] - o
            y1 = x1[d] - o
            y2 = x2[d] - o
            y3 = x3[d] - o
            total[d] += (y0 + y1) + (y2 + y3)
            squares[d] += (y0 * y0 + y1 * y1) + (y2 * y2 + y3 * y3)
    for i in range(whole, len(rows)):
        x0 = embedding[rows[i]]
        for d in range(dimensions):
            y0 = x0[d] - np.float64(origin[d])
            total[d] += y0
            squares[d] += y0 * y0

    poison = 0.0  # becomes NaN if any value is NaN or infinite; branching on each would cost more
    for d in range(dimensions):
        shift = total[d] / len(rows)
        spread = squares[d] - total[d] * shift
        poison += (spread + shift) * 0.0
        mean[d] = origin[d] + shift
        m2[d] = max(spread, 0.0)
    return poison == 0.0


@compiled()
def _merge_class(
    count: NDArray[np.int64],
    mean: NDArray[np.float64],
    m2: NDArray[np.float64],
    k: int,
    other_count: int,
    other_mean: NDArray[np.float64],
    other_m2: NDArray[np.float64],
) -> None:
    """Merge one class's moments into row k."""
    if other_count == 0:
        return
    if count[k] == 0:
        for d in range(mean.shape[1]):
            mean[k, d] = other_mean[d]
            m2[k, d] = other_m2[d]
    else:
        share = other_count / np.float64(count[k] + other_count)
        weight = count[k] * share
        for d in range(mean.shape[1]):
            difference = other_mean[d] - mean[k, d]
            mean[k, d] += difference * share
            m2[k, d] += other_m2[d] + difference * difference * weight
    count[k] += other_count


@compiled()
def _merge_classes(
    count: NDArray[np.int64],
    mean: NDArray[np.float64],
    m2: NDArray[np.float64],
    other_count: NDArray[np.int64],
    other_mean: NDArray[np.float64],
    other_m2: NDArray[np.float64],
) -> None:
    for k in range(len(count)):
        _merge_class(count, mean, m2, k, other_count[k], other_mean[k], other_m2[k])
