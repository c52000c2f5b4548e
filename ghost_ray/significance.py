"""Whether a rival differs from GHOST by more than chance: paired t-tests over seeded draws.

Every method is measured on the same draws of knowns and unknowns, so a test compares differences and not levels; the
p-values are multiplied by the number of rivals (Bonferroni). Of a set with no more rows than a draw each draw takes
half; and where draws take half of a set or more, the test allows for the rows they have in common.
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


def rows_drawn(available: int, size: int = SIZE) -> int:
    """How many rows of a set a draw takes: ``size``, or half of a set that has no more than that.

    Draws of a whole set would all be the same one, and there would be nothing to test.
    """
    return size if available > size else max(1, available // 2)


def share_drawn(available: int, size: int = SIZE) -> float:
    """The share of a set that each draw takes; 0 where it is less than half, and the test is the paper's."""
    return rows_drawn(available, size) / available if available < 2 * size else 0.0


def draw(knowns: int, unknowns: int, draws: int = DRAWS, size: int = SIZE, seed: int = 0) -> list[Draw]:
    """Seeded draws of knowns and unknowns, `rows_drawn` of each set; the same for every method."""
    if draws < 2 or size < 1:
        raise ValueError(f"a test needs at least 2 draws of at least 1 sample, got {draws} draws of {size}")
    made = []
    for index in range(draws):
        rng = np.random.default_rng([seed, index])
        known, unknown = (np.sort(rng.permutation(n)[: rows_drawn(n, size)]) for n in (knowns, unknowns))
        made.append(Draw(known, unknown))
    return made


def caution(rows: str, available: int, size: int = SIZE) -> str | None:
    """What a reader of the tests should know of the draws from one set, or None where they are as the paper's.

    Parameters
    ----------
    rows : str
        What the rows are called, for example ``unknowns of ninco``.
    """
    if available >= 2 * size:
        return None
    drawn = "half" if available <= size else f"{size:,}"
    return (
        f"each draw takes {drawn} of the {available:,} {rows}; the tests allow for the rows that draws have in common"
    )


def paired_test(rival: npt.ArrayLike, reference: npt.ArrayLike, share: float = 0.0) -> tuple[float | None, float, str]:
    """Two-sided paired t-test of values over the same draws: t, p, and a note where there is no t.

    Parameters
    ----------
    rival, reference : array of shape [J]
    share : float, default 0
        f, the share of the rows that each draw takes. Draws that have rows in common vary less among each other than
        sets of new rows would: the variance of their mean is v·(1/J + f/(1−f)), of which the second part is that
        of the whole set and does not shrink with more draws (after Nadeau and Bengio, 2003). At 0 it is the plain test.

    Differences that do not vary have no t: p is 1 where they are all zero and 0 where they are not.
    """
    from scipy import stats

    difference = np.asarray(rival, np.float64) - np.asarray(reference, np.float64)
    if share >= 1:
        return None, 1.0, "a single row cannot be drawn from"
    if not difference.any():
        return None, 1.0, "equal on every draw"
    # Values are ratios of counts; what is left of equal ones after subtraction is rounding.
    if np.ptp(difference) <= 1e-12:
        return None, 0.0, "the same difference on every draw"
    draws = len(difference)
    t = float(difference.mean() / np.sqrt(difference.var(ddof=1) * (1 / draws + share / (1 - share))))
    return t, float(2 * stats.t.sf(abs(t), draws - 1)), ""


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
        In order of methods, then of metrics.
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

    share = max(share_drawn(knowns, size), share_drawn(unknowns, size))
    comparisons = []
    for name in rivals:
        for metric in METRICS:
            mine, theirs = values[name][metric], values[reference][metric]
            t, p, note = paired_test(mine, theirs, share)
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
