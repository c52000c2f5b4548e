"""GHOST's score through a generalized Pareto distribution of each class."""

from __future__ import annotations

import contextlib
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
STARTS = (-0.9, -0.5, -0.1, 0.1, 0.5, 1.0)  # shapes


def pareto_cdf(x: Floats, shape: Floats, location: Floats, scale: Floats) -> Floats:
    """CDF of generalized Pareto distributions with a parameter set for each x [B]."""
    z = np.maximum((np.clip(x, -1e300, 1e300) - location) / scale, 0.0)
    exponential = np.abs(shape) < 1e-12
    c = np.where(exponential, 1.0, shape)
    with np.errstate(divide="ignore", over="ignore"):
        log_survival = np.where(exponential, -z, -np.log1p(np.maximum(c * z, -1.0)) / c)
    result: Floats = -np.expm1(log_survival)
    return result


def fit_pareto(values: Floats) -> Floats | None:
    """Shape, location and scale of the highest likelihood among shapes ≥ −1; None if the values are all equal.

    For such shapes the density falls, so the smallest value is the best location. At −1 it is constant: the uniform
    distribution. Below −1 the likelihood has no maximum. An optimiser that starts from one point, with the location
    free, stops tens of nats short of it, and elsewhere after a change of 1e-8.
    """
    from scipy import stats

    smallest, width = values.min(), np.ptp(values)
    if not width > 0:
        return None
    unit = (values - smallest) / width  # the optimiser's tolerances are absolute
    mean = unit.mean()
    found = [(-1.0, 0.0, 1.0)]
    with collected_warnings(), np.errstate(all="ignore"):
        for shape in STARTS:
            scale = max(mean * (1 - shape), mean / 2, -shape * 1.001)  # no value is outside the support
            with contextlib.suppress(stats.FitError, ValueError, FloatingPointError):
                found.append(stats.genpareto.fit(unit, shape, floc=0.0, scale=scale))
        likelihood = [stats.genpareto.logpdf(unit, *fit).sum() if fit[0] >= -1 else -np.inf for fit in found]
    shape, _, scale = found[int(np.nanargmax(likelihood))]
    return np.array([shape, smallest, scale * width])


@register
class GhostGPD(Ghost):
    """F_k(γ), F_k = generalized Pareto CDF fitted to γ of the correctly classified training samples of class k.

    What the authors' published code returns as ``ReScore``; γ as in ``ghost`` (https://arxiv.org/abs/2502.03359), k
    the network's prediction. (Their code takes k as the argmax over a matrix filled with zeros elsewhere, which names
    another class when the top logit is negative.) The fit is that of ``scipy.stats.genpareto.fit`` from several
    starts, the best kept; theirs is from one, and stops short of it in most classes. No options.

    Notes
    -----
    A class with fewer than 5 such samples, or whose γ are all equal, takes the median of each parameter over the fitted
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
        values = rows.values[:, 0]
        if len(values) < FEWEST or not np.isfinite(values).all():
            return None
        fitted = fit_pareto(values)
        return fitted if fitted is not None and np.isfinite(fitted).all() and fitted[2] > 0 else None

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
