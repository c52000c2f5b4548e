"""GHOST's score through a generalized Pareto distribution of each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ghost_ray.errors import collected_warnings
from ghost_ray.gaussians import Gaussians, ghost_score
from ghost_ray.rows import Floats, Rows
from ghost_ray.scorers._common import listed
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.ghost import Ghost
from ghost_ray.scorers.scorer import Kept

FEWEST = 5  # samples for three parameters


def pareto_cdf(x: Floats, shape: Floats, location: Floats, scale: Floats) -> Floats:
    """CDF of generalized Pareto distributions with a parameter set for each x [B]."""
    z = np.maximum((np.clip(x, -1e300, 1e300) - location) / scale, 0.0)
    exponential = np.abs(shape) < 1e-12
    c = np.where(exponential, 1.0, shape)
    with np.errstate(divide="ignore", over="ignore"):
        log_survival = np.where(exponential, -z, -np.log1p(np.maximum(c * z, -1.0)) / c)
    result: Floats = -np.expm1(log_survival)
    return result


@register
class GhostGPD(Ghost):
    """F_k(γ), F_k = generalized Pareto CDF fitted to γ of the correctly classified training samples of class k.

    What the authors' published code returns as ``ReScore``; γ as in ``ghost`` (https://arxiv.org/abs/2502.03359), k
    the network's prediction. (Their code takes k as the argmax over a matrix filled with zeros elsewhere, which names
    another class when the top logit is negative.) The fit is ``scipy.stats.genpareto.fit`` with its defaults.
    No options.

    Notes
    -----
    A class with fewer than 5 such samples, or whose fit fails, takes the median of each parameter over the fitted
    classes (γ is on one scale for a network) and is named in ``fallback_``. A class without a Gaussian scores −inf.
    """

    name = "ghost-gpd"
    title = "GHOST-GPD"
    fits_on_logits = True
    by_class = True
    keeps = (Gaussians,)

    parameters_: Floats  # [K, 3]: shape, location, scale
    fallback_: npt.NDArray[np.intp]

    def keep(self, batch: Rows) -> Kept:
        rows = batch.take(batch.correct)
        return Kept(rows.label, rows.row_id, ghost_score(rows, self.gaussians_).gamma[:, None])

    def fit_class(self, index: int, rows: Kept) -> Floats | None:
        from scipy import stats

        values = rows.values[:, 0]
        if len(values) < FEWEST or not np.isfinite(values).all():
            return None
        with collected_warnings(), np.errstate(all="ignore"):
            try:
                fitted = np.array(stats.genpareto.fit(values))
            except (stats.FitError, ValueError, FloatingPointError):
                return None
        return fitted if np.isfinite(fitted).all() and fitted[2] > 0 else None

    def end_classes(self, fits: Mapping[int, Any]) -> None:
        fitted = {k: fit for k, fit in fits.items() if fit is not None}
        if not fitted:
            raise ValueError(f"{self.name}: no class has {FEWEST} correctly classified training samples")
        self.parameters_ = np.tile(np.median(list(fitted.values()), axis=0), (self.classes_, 1))
        self.parameters_[list(fitted)] = list(fitted.values())
        fallback = self.gaussians_.present.copy()
        fallback[list(fitted)] = False
        self.fallback_ = np.flatnonzero(fallback)

    def score_of_gamma(self, gamma: Floats, batch: Rows) -> Floats:
        has_gaussian = np.isfinite(gamma)
        score = gamma.copy()
        score[has_gaussian] = pareto_cdf(gamma[has_gaussian], *self.parameters_[batch.pred[has_gaussian]].T)
        return score

    def notes(self) -> list[str]:
        if not len(self.fallback_):
            return super().notes()
        return [*super().notes(), f"{self.name}: {listed(self.fallback_)} without a Pareto fit, the median one used"]
