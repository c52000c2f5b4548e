"""GHOST with the full covariance of each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ghost_ray.gaussians import gamma
from ghost_ray.rows import Floats, Rows, Singles
from ghost_ray.scorers._common import groups, listed
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Kept, ShardedScorer

LEAST_SHRINKAGE = 1e-6  # two samples are on a line, where Ledoit–Wolf finds nothing to shrink


@dataclass(frozen=True)
class Ellipsoid:
    """A shrunk covariance Σ by its axes: those the samples span, and one variance for all others.

    With n samples only min(n − 1, D) axes are kept, instead of D² numbers.
    """

    mean: Floats  # [D]
    axes: Singles  # [D, R], orthonormal columns
    variance: Floats  # [R], of Σ along the axes
    rest: float  # variance of Σ in every other direction

    def squared_distance(self, embedding: Singles) -> Floats:
        """(f − μ)ᵀ Σ⁻¹ (f − μ) of rows [n, D]."""
        centred = embedding.astype(np.float64) - self.mean
        axes = self.axes.astype(np.float64)
        along = centred @ axes
        squared: Floats = (along**2 / self.variance).sum(axis=1)
        if axes.shape[1] < axes.shape[0]:
            beside = centred - along @ axes.T
            squared += np.einsum("nd,nd->n", beside, beside) / self.rest
        return squared


def fit_ellipsoid(rows: npt.NDArray[Any]) -> Ellipsoid | None:
    """Mean and Ledoit–Wolf covariance of rows [n, D]; None if they do not differ.

    Σ = (1 − ρ) S + ρ (tr S / D) I, S with 1/n, and ρ by Ledoit and Wolf, *A Well-Conditioned Estimator for
    Large-Dimensional Covariance Matrices*, J. Multivariate Analysis 88 (2004). All of it follows from the
    eigenvalues of the smaller of XᵀX and XXᵀ.
    """
    rows = rows.astype(np.float64)
    n, dim = rows.shape
    if n < 2:
        return None
    mean = rows.mean(axis=0)
    x = rows - mean
    wide = n <= dim
    values, vectors = np.linalg.eigh((x @ x.T if wide else x.T @ x) / n)
    kept = values > values[-1] * max(n, dim) * np.finfo(np.float64).eps
    if values[-1] <= 0:
        return None
    values, vectors = values[kept], vectors[:, kept]
    axes = x.T @ vectors / np.sqrt(n * values) if wide else vectors

    average = values.sum() / dim
    dispersion = (values**2).sum() / dim - average**2
    noise = ((np.einsum("nd,nd->n", x, x) ** 2).sum() / n - (values**2).sum()) / (n * dim)
    shrinkage = min(max(noise, 0.0) / dispersion, 1.0) if dispersion > 0 else 1.0
    shrinkage = max(shrinkage, LEAST_SHRINKAGE)
    rest = shrinkage * average
    return Ellipsoid(mean, axes.astype(np.float32), (1 - shrinkage) * values + rest, float(rest))


@register
class GhostFull(ShardedScorer):
    """ℓ_k / sqrt((f − μ_k)ᵀ Σ_k⁻¹ (f − μ_k)), k the predicted class, Σ_k with Ledoit–Wolf shrinkage.

    The future work of the GHOST paper (https://arxiv.org/abs/2502.03359): dimensions need not be independent.
    μ_k and Σ_k are of the *correctly classified* training samples of a class; with shrinkage, fewer samples than
    dimensions are enough. A class whose samples are fewer than two or all equal scores −inf. No options.

    Notes
    -----
    At most min(N_k − 1, D) · D float32 per class, 6.5 GB on ImageNet with D = 1280: classes may be in several shards,
    each a mapping from class to its ellipsoid.
    """

    name = "ghost-full"
    title = "GHOST-full"
    rival = False
    fits_on_logits = False
    by_class = True
    keeps = (Ellipsoid,)

    def keep(self, batch: Rows) -> Kept:
        rows = batch.take(batch.correct)
        return Kept(rows.label, rows.row_id, rows.embedding)

    def fit_class(self, index: int, rows: Kept) -> Ellipsoid | None:
        return fit_ellipsoid(rows.values)

    def end_classes(self, fits: Mapping[int, Any]) -> None:
        self.shards_ = [{k: fit for k, fit in fits.items() if fit is not None}]

    def score_shard(self, shard: Mapping[int, Ellipsoid], batch: Rows) -> Floats:
        squared = np.full((len(batch), 1), np.inf)
        for k, rows in groups(batch.pred):
            if k in shard:
                squared[rows, 0] = shard[k].squared_distance(batch.embedding[rows])
        return squared

    def merge_partial(self, a: Floats, b: Floats) -> Floats:
        return np.minimum(a, b)

    def finish_finite(self, partial: Floats, batch: Rows) -> Floats:
        squared = partial[:, 0]
        return gamma(batch.top_logit(), np.sqrt(squared), np.isfinite(squared))

    def notes(self) -> list[str]:
        missing = set(range(self.classes_)).difference(*self.shards_)
        return [f"{self.name}: {listed(sorted(missing))} without a covariance, scored −inf"] if missing else []
