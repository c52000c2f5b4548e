"""Whether a rival differs from GHOST by more than chance: paired t-tests over seeded draws.

Every method is measured on the same draws of knowns and unknowns, so a test compares differences and not levels; the
p-values are multiplied by the number of rivals (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ghost_ray import metrics
from ghost_ray.metrics import OpenSetScores

DRAWS = 10
SIZE = 1000
ALPHA = 0.05

METRICS: dict[str, Callable[[OpenSetScores], float]] = {
    "auroc": metrics.auroc,
    "auoscr": metrics.auoscr,
    "fpr95": metrics.fpr_at_tpr,
}


@dataclass(frozen=True)
class Draw:
    """Rows of one resampling, without replacement."""

    known: npt.NDArray[np.int64]
    unknown: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Comparison:
    """A rival against the reference on one metric."""

    method: str
    reference: str
    metric: str
    mean: float  # of the rival over the draws
    reference_mean: float
    difference: float  # rival − reference
    t: float | None  # None where the differences do not vary
    p: float
    p_bonferroni: float
    significant: bool
    note: str  # why p is what it is, where no t-test could be made

    def as_dict(self) -> dict[str, Any]:
        """Fields by name, fit for JSON."""
        return asdict(self)


def draw(knowns: int, unknowns: int, draws: int = DRAWS, size: int = SIZE, seed: int = 0) -> list[Draw]:
    """Seeded draws of min(size, available) knowns and unknowns each; the same for every method.

    A set no larger than ``size`` is drawn whole every time.
    """
    if draws < 2 or size < 1:
        raise ValueError(f"a test needs at least 2 draws of at least 1 sample, got {draws} draws of {size}")
    made = []
    for index in range(draws):
        rng = np.random.default_rng([seed, index])
        known, unknown = (np.sort(rng.permutation(n)[: min(n, size)]) for n in (knowns, unknowns))
        made.append(Draw(known, unknown))
    return made


def paired_test(rival: npt.ArrayLike, reference: npt.ArrayLike) -> tuple[float | None, float, str]:
    """Two-sided paired t-test of values over the same draws: t, p, and a note where there is no t.

    Differences that do not vary have no t: p is 1 where they are all zero and 0 where they are not.
    """
    from scipy import stats

    difference = np.asarray(rival, np.float64) - np.asarray(reference, np.float64)
    if not difference.any():
        return None, 1.0, "equal on every draw"
    # Values are ratios of counts; what is left of equal ones after subtraction is rounding.
    if np.ptp(difference) <= 1e-12:
        return None, 0.0, "the same difference on every draw"
    result = stats.ttest_1samp(difference, 0.0)
    return float(result.statistic), float(result.pvalue), ""


def compare(
    scores: Mapping[str, OpenSetScores],
    reference: str = "ghost",
    draws: int = DRAWS,
    size: int = SIZE,
    seed: int = 0,
    alpha: float = ALPHA,
) -> list[Comparison]:
    """Test every method against the reference on AUROC, AUOSCR and FPR95.

    Parameters
    ----------
    scores : mapping from method to OpenSetScores
        Of the same knowns and unknowns in the same order.
    reference : str, default "ghost"
    draws, size, seed : int, default 10, 1000, 0
    alpha : float, default 0.05
        Level at which a corrected p-value is called significant.

    Returns
    -------
    list of Comparison
        In order of methods, then of metrics. With sets so small that every draw is all of them there is nothing to
        test: p = 1, and the note says so.
    """
    if reference not in scores:
        raise ValueError(f"reference method {reference!r} is not among {', '.join(scores)}")
    shapes = {name: (len(s.known), len(s.unknown)) for name, s in scores.items()}
    knowns, unknowns = shapes[reference]
    for name, shape in shapes.items():
        if shape != (knowns, unknowns):
            raise ValueError(f"{name} has {shape} knowns and unknowns, {reference} has {(knowns, unknowns)}")
    rivals = [name for name in scores if name != reference]
    picked = draw(knowns, unknowns, draws, size, seed)
    values = {name: {metric: np.empty(draws) for metric in METRICS} for name in scores}
    for name, s in scores.items():
        for index, rows in enumerate(picked):
            part = s.take(rows.known, rows.unknown)
            for metric, function in METRICS.items():
                values[name][metric][index] = function(part)

    exhausted = knowns <= size and unknowns <= size
    comparisons = []
    for name in rivals:
        for metric in METRICS:
            mine, theirs = values[name][metric], values[reference][metric]
            t, p, note = paired_test(mine, theirs)
            if exhausted:
                t, p, note = None, 1.0, f"every draw is the whole of {knowns} knowns and {unknowns} unknowns"
            corrected = min(1.0, p * len(rivals))
            comparisons.append(
                Comparison(
                    method=name,
                    reference=reference,
                    metric=metric,
                    mean=float(mine.mean()),
                    reference_mean=float(theirs.mean()),
                    difference=float(mine.mean() - theirs.mean()),
                    t=t,
                    p=p,
                    p_bonferroni=corrected,
                    significant=corrected < alpha,
                    note=note,
                )
            )
    return comparisons
