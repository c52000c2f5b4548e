"""The fitted Gaussians."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ghost_ray.compiled import read_only


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Mean and standard deviation of every class and dimension.

    A class with fewer than two samples has no Gaussian: its rows are zero and it is listed in `missing`.
    """

    mean: NDArray[np.float32]  # [K, D]
    std: NDArray[np.float32]  # [K, D], with N − 1
    count: NDArray[np.int64]  # [K]

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which classes have a Gaussian, [K]."""
        return self.count >= 2

    @property
    def missing(self) -> NDArray[np.intp]:
        """The classes without a Gaussian."""
        return np.flatnonzero(~self.present)

    @property
    def thin(self) -> NDArray[np.intp]:
        """The classes whose Gaussian is fitted on fewer samples than there are dimensions."""
        return np.flatnonzero(self.present & (self.count < self.mean.shape[1]))

    @property
    def constant(self) -> int:
        """How many (class, dimension) pairs have σ = 0, over the classes that have a Gaussian."""
        return sum(self.std.shape[1] - int(np.count_nonzero(self.std[row])) for row in np.flatnonzero(self.present))

    @functools.cached_property
    def inverse_std(self) -> NDArray[np.float32]:
        """1/σ, and 0 where σ = 0: a constant dimension then adds nothing to a distance, [K, D]."""
        largest = np.float32(np.finfo(np.float32).max)
        inverse = np.zeros_like(self.std)
        with np.errstate(over="ignore"):
            np.divide(np.float32(1), self.std, out=inverse, where=self.std > 0)
        return np.minimum(inverse, largest, out=inverse)


def as_embedding(embedding: NDArray[Any], dimensions: int) -> NDArray[Any]:
    """Return a batch of embeddings as the kernels take it: C order, float32 or float64, read-only."""
    embedding = np.asarray(embedding)
    if embedding.ndim != 2 or embedding.shape[1] != dimensions:
        raise ValueError(f"embedding must have shape [B, {dimensions}], got {embedding.shape}")
    dtype = embedding.dtype if embedding.dtype in (np.float32, np.float64) else np.float64
    return read_only(np.ascontiguousarray(embedding, dtype=dtype))
