"""Whether a rival differs from GHOST by more than chance: paired t-tests over seeded draws.

Every method is measured on the same draws of knowns and unknowns, so a test compares differences and not levels. The
p-values are multiplied by the number of rivals (Bonferroni); variants of GHOST are not rivals. From a set with no more
rows than a draw, each draw takes half. If draws take half of a set or more, the test accounts for the rows they share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from ghost_ray.metrics import Metric, OpenSetScores, tested

DRAWS = 10
SIZE = 1000
ALPHA = 0.05


@dataclass(frozen=True)
class Draw:
    """Rows of one resampling, without replacement."""

    known: npt.NDArray[np.int64]
    unknown: npt.NDArray[np.int64]


class Comparison(TypedDict):
    """A rival against the reference on one metric."""

    method: str
    reference: str
    metric: str
    mean: float | None  # of the rival over the draws; None if the metric is not defined on one of them
    reference_mean: float | None
    difference: float | None  # rival − reference
    t: float | None  # None if the differences do not vary
    p: float
    p_bonferroni: float
    significant: bool
    note: str  # the reason for p, if no t-test was possible


def rows_drawn(available: int, size: int = SIZE) -> int:
    """How many rows of a set a draw takes: ``size``, or half of a set that has no more than that.

    Draws of a whole set would all be the same, and there would be nothing to test.
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
    """What a reader of the tests should know about the draws from one set, or None if they are like the paper's.

    Parameters
    ----------
    rows : str
        What the rows are called, for example ``unknowns of ninco``.
    """
    if available >= 2 * size:
        return None
    if available < 2:
        return f"with {available:,} of the {rows} no draws can be made"
    drawn = "half" if available <= size else f"{size:,}"
    return f"each draw takes {drawn} of the {available:,} {rows}; the tests account for the rows that draws share"


def paired_test(rival: npt.ArrayLike, reference: npt.ArrayLike, share: float = 0.0) -> tuple[float | None, float, str]:
    """Two-sided paired t-test of values over the same draws: t, p, and a note where there is no t.

    Parameters
    ----------
    rival, reference : array of shape [J]
    share : float, default 0
        f, the share of the rows that each draw takes. Draws that have rows in common vary less among each other than
        sets of new rows would: the variance of their mean is v·(1/J + f/(1−f)), of which the second part is that
        of the whole set and does not shrink with more draws (after Nadeau and Bengio, 2003). At 0 it is the plain test.

    Differences that do not vary have no t: p is 1 where they are all zero and 0 where they are not. A NaN means that
    the metric is not defined on a draw: p is 1.
    """
    from scipy.special import stdtr  # Student's distribution; scipy.stats, which calls it, takes a second to import

    difference = np.asarray(rival, np.float64) - np.asarray(reference, np.float64)
    if share >= 1:
        return None, 1.0, "no draws can be made from a single row"
    if np.isnan(difference).any():
        return None, 1.0, "not defined on every draw"
    if not difference.any():
        return None, 1.0, "equal on every draw"
    # Values are ratios of counts; differences between equal ones are only rounding.
    if np.ptp(difference) <= 1e-12:
        return None, 0.0, "the same difference on every draw"
    draws = len(difference)
    t = float(difference.mean() / np.sqrt(difference.var(ddof=1) * (1 / draws + share / (1 - share))))
    return t, float(2 * stdtr(draws - 1, -abs(t))), ""


def bonferroni(p: Sequence[float]) -> list[float]:
    """p-values times their number, at most 1."""
    return [min(value * len(p), 1.0) for value in p]


Values = Mapping[str, Mapping[str, npt.NDArray[np.float64]]]  # method → metric → [J], NaN where it is not defined


def measure_draws(
    scores: Mapping[str, OpenSetScores],
    draws: int = DRAWS,
    size: int = SIZE,
    seed: int = 0,
    on: Sequence[Metric] | None = None,
) -> dict[str, dict[str, npt.NDArray[np.float64]]]:
    """Every method on every draw: by method and metric an array [J], NaN where the metric is not defined.

    The draws depend on the numbers of knowns and unknowns and the seed alone, so values that were measured at another
    time, for other methods, can be paired with these.

    Parameters
    ----------
    scores : mapping from method to OpenSetScores
        Of the same knowns and unknowns in the same order.
    draws, size, seed : int, default 10, 1000, 0
    on : sequence of Metric, optional
        Default: `metrics.tested`, that is AUROC, AUOSCR and FPR95.
    """
    shapes = {name: (len(s.known), len(s.unknown)) for name, s in scores.items()}
    first, (knowns, unknowns) = next(iter(shapes.items()))
    for name, shape in shapes.items():
        if shape != (knowns, unknowns):
            raise ValueError(f"{name} has {shape} knowns and unknowns, {first} has {(knowns, unknowns)}")
    picked = draw(knowns, unknowns, draws, size, seed)
    on = tested() if on is None else on
    values = {name: {metric.field: np.empty(draws) for metric in on} for name in scores}
    for name, s in scores.items():
        for index, rows in enumerate(picked):
            part = s.take(rows.known, rows.unknown)
            for metric in on:
                value, _ = metric.measure(part)
                values[name][metric.field][index] = np.nan if value is None else value
    return values


def compare_drawn(
    values: Values,
    reference: str = "ghost",
    share: float = 0.0,
    alpha: float = ALPHA,
    variants: Collection[str] = (),
) -> list[Comparison]:
    """Test every method against the reference on each metric.

    Parameters
    ----------
    values : mapping from method to mapping from metric to array of shape [J]
        As `measure_draws` gives them: paired.
    reference : str, default "ghost"
    share : float, default 0
        The share of the rows that each draw takes, for `paired_test`.
    alpha : float, default 0.05
        Level at which a corrected p-value is called significant.
    variants : collection of str, optional
        Methods that are variants of the reference and no rivals of it: they do not count in the correction for the
        rivals, and have their own correction.

    Returns
    -------
    list of Comparison
        In order of methods, then of metrics.
    """
    if reference not in values:
        raise ValueError(f"reference method {reference!r} is not among {', '.join(values)}")
    theirs = values[reference]
    others = [name for name in values if name != reference]
    tests = {
        (name, field): paired_test(values[name][field], theirs[field], share) for name in others for field in theirs
    }
    corrected: dict[tuple[str, str], float] = {}
    for family in ([n for n in others if n not in variants], [n for n in others if n in variants]):
        for field in theirs if family else ():
            corrections = bonferroni([tests[name, field][1] for name in family])
            corrected |= {(name, field): p for name, p in zip(family, corrections, strict=True)}
    comparisons = []
    for name in others:
        for field in theirs:
            t, p, note = tests[name, field]
            mean, reference_mean = mean_of(values[name][field]), mean_of(theirs[field])
            comparisons.append(
                Comparison(
                    method=name,
                    reference=reference,
                    metric=field,
                    mean=mean,
                    reference_mean=reference_mean,
                    difference=None if mean is None or reference_mean is None else mean - reference_mean,
                    t=t,
                    p=p,
                    p_bonferroni=corrected[name, field],
                    significant=corrected[name, field] < alpha,
                    note=note,
                )
            )
    return comparisons


def compare(
    scores: Mapping[str, OpenSetScores],
    reference: str = "ghost",
    draws: int = DRAWS,
    size: int = SIZE,
    seed: int = 0,
    alpha: float = ALPHA,
    on: Sequence[Metric] | None = None,
    variants: Collection[str] = (),
) -> list[Comparison]:
    """`measure_draws` and then `compare_drawn`: test every method against the reference."""
    if reference not in scores:
        raise ValueError(f"reference method {reference!r} is not among {', '.join(scores)}")
    values = measure_draws(scores, draws, size, seed, on)
    share = max(share_drawn(len(rows), size) for rows in (scores[reference].known, scores[reference].unknown))
    return compare_drawn(values, reference, share, alpha, variants)


def mean_of(values: npt.NDArray[np.float64]) -> float | None:
    """The mean over draws; None if the metric is not defined on one of them."""
    return None if np.isnan(values).any() else float(values.mean())


def std_of(values: npt.NDArray[np.float64]) -> float | None:
    """The standard deviation over draws, with J − 1; None if the metric is not defined on one of them."""
    return None if len(values) < 2 or np.isnan(values).any() else float(values.std(ddof=1))
