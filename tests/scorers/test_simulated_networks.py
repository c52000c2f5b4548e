"""Networks whose answer is known: AUROCs as computed from the distributions, not from another program."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from ghost_ray import metrics, scorers
from ghost_ray.rows import Head

CLASSES, DIM, ROWS = 4, 40, 6000
FAR = 60.0  # class means are this far out, so that a top logit hardly varies and the nearest class is its own


def auroc(name: str, train, known, unknown, head) -> float:
    scorer = scorers.create(name).fit(lambda: [train], head)
    scores = metrics.OpenSetScores(scorer.score(known), known.correct, known.label, scorer.score(unknown))
    return metrics.auroc(scores)


def simulate(batch_of, shift: np.ndarray, mixing: np.ndarray | None = None, seed: int = 0, drop: float = 0.0):
    """Class k lies at FAR on axis k; unknowns are moved by ``shift`` along the other axes, which the head ignores.

    With ``drop`` they also lie that much less far out, which lowers their logit and nothing else.
    """
    rng = np.random.default_rng(seed)
    head = Head(np.eye(CLASSES, DIM, dtype=np.float32), np.zeros(CLASSES, np.float32))

    def rows(first_id: int, moved: np.ndarray | float = 0.0, labelled: bool = True, reach: float = FAR):
        label = rng.integers(0, CLASSES, ROWS)
        noise = rng.normal(size=(ROWS, DIM))
        if mixing is not None:
            noise[:, CLASSES:] = noise[:, CLASSES:] @ mixing.T
        noise[:, CLASSES:] += moved
        embedding = noise + reach * np.eye(CLASSES, DIM)[label]
        return batch_of(head, embedding, label if labelled else np.full(ROWS, -1), first_id)

    return rows(0), rows(ROWS), rows(2 * ROWS, shift, labelled=False, reach=FAR - drop), head


def folded(shift: np.ndarray) -> tuple[float, float]:
    """Mean and variance of Σ_d |N(shift_d, 1)|."""
    mean = np.sqrt(2 / np.pi) * np.exp(-(shift**2) / 2) + shift * (1 - 2 * stats.norm.cdf(-shift))
    return float(mean.sum()), float((shift**2 + 1 - mean**2).sum())


def auroc_of_folded_sums(shift: np.ndarray) -> float:
    """P(s of an unknown > s of a known), both nearly normal as sums of 40 terms."""
    (low, low_variance), (high, high_variance) = folded(np.zeros(DIM)), folded(shift)
    return float(stats.norm.cdf((high - low) / np.sqrt(low_variance + high_variance)))


def auroc_of_chi_square(noncentrality: float) -> float:
    """P(χ²(D, λ) > χ²(D))."""
    value, _ = integrate.quad(
        lambda x: stats.chi2.pdf(x, DIM) * stats.ncx2.sf(x, DIM, noncentrality), 0, 40 * DIM, limit=500
    )
    return value


@pytest.mark.parametrize("distance", [3.0, 5.0, 8.0])
def test_auroc_at_a_chosen_distance(distance, batch_of):
    shift = np.zeros(DIM)
    shift[CLASSES:] = distance / np.sqrt(DIM - CLASSES)
    train, known, unknown, head = simulate(batch_of, shift[CLASSES:])
    assert known.correct.all()

    by_squares = auroc_of_chi_square(distance**2)
    assert auroc("ghost", train, known, unknown, head) == pytest.approx(auroc_of_folded_sums(shift), abs=0.012)
    assert auroc("mds", train, known, unknown, head) == pytest.approx(by_squares, abs=0.012)
    assert auroc("ghost-full", train, known, unknown, head) == pytest.approx(by_squares, abs=0.02)
    for blind in ("msp", "maxlogit", "energy"):
        assert auroc(blind, train, known, unknown, head) == pytest.approx(0.5, abs=0.015)


def analytical(shift: np.ndarray, drop: float) -> dict[str, float]:
    """AUROCs for unknowns moved by ``shift`` along all axes, of which ``drop`` is against the class's own."""
    (low, low_variance), (high, high_variance) = folded(np.zeros(DIM)), folded(np.append(shift, drop)[1:])
    near, far = FAR - drop, FAR
    # γ of a known is the larger where z·s' − z'·s > 0, a sum of many terms; z and z' have variance 1.
    spread = far**2 * high_variance + near**2 * low_variance + high**2 + low**2
    return {
        "ghost": float(stats.norm.cdf((far * high - near * low) / np.sqrt(spread))),
        "mds": auroc_of_chi_square(float(shift @ shift) + drop**2),
        "maxlogit": float(stats.norm.cdf(drop / np.sqrt(2))),
    }


@pytest.mark.parametrize(
    ("even", "loud", "drop", "order"),
    [
        (0.6, 0.0, 0.8, ["ghost", "mds", "maxlogit"]),
        (0.0, 6.0, 0.0, ["mds", "ghost", "maxlogit"]),
        (0.0, 0.0, 3.0, ["maxlogit", "ghost", "mds"]),
    ],
)
def test_methods_come_out_in_the_order_computed(even, loud, drop, order, batch_of):
    """A little of everything, far in one dimension, or a smaller logit alone: each has its own best method."""
    shift = np.zeros(DIM)
    shift[CLASSES:] = even
    shift[-1] += loud
    expected = analytical(shift, drop)
    assert sorted(expected, key=expected.__getitem__, reverse=True) == order
    train, known, unknown, head = simulate(batch_of, shift[CLASSES:], drop=drop)
    found = {name: auroc(name, train, known, unknown, head) for name in expected}
    assert found == pytest.approx(expected, abs=0.01)
    assert sorted(found, key=found.__getitem__, reverse=True) == order


def test_one_loud_dimension_is_seen_better_by_squares(batch_of):
    """A shift in one dimension adds δ² to a sum of squares, but only δ to GHOST's sum of distances."""
    shift = np.zeros(DIM)
    shift[-1] = 6.0
    train, known, unknown, head = simulate(batch_of, shift[CLASSES:])
    ghost, mds = (auroc(name, train, known, unknown, head) for name in ("ghost", "mds"))
    assert ghost == pytest.approx(auroc_of_folded_sums(shift), abs=0.012)
    assert mds == pytest.approx(auroc_of_chi_square(36.0), abs=0.012)
    assert mds > ghost + 0.05


def test_full_covariance_sees_what_breaks_a_correlation(batch_of):
    """One common factor in all free dimensions; unknowns are moved across it. Distance² = δᵀ Σ⁻¹ δ."""
    free = DIM - CLASSES
    covariance = np.full((free, free), 0.95) + 0.05 * np.eye(free)
    shift = np.zeros(free)
    shift[0::2], shift[1::2] = 0.25, -0.25
    train, known, unknown, head = simulate(batch_of, shift, np.linalg.cholesky(covariance))
    expected = auroc_of_chi_square(float(shift @ np.linalg.inv(covariance) @ shift))
    full, ghost = (auroc(name, train, known, unknown, head) for name in ("ghost-full", "ghost"))
    assert full == pytest.approx(expected, abs=0.02)
    assert full > 0.9
    assert ghost < 0.6


def test_closed_set_rates_are_those_of_the_normal_distribution(batch_of):
    """With all knowns right, OSCR is ROC, and F@C95 is FPR95: P(s_unknown below the 95 % quantile of s_known)."""
    shift = np.full(DIM - CLASSES, 1.0)
    train, known, unknown, head = simulate(batch_of, shift)
    scorer = scorers.create("mds").fit(lambda: [train], head)
    result = metrics.evaluate(
        metrics.OpenSetScores(scorer.score(known), known.correct, known.label, scorer.score(unknown))
    )
    expected = stats.ncx2.cdf(stats.chi2.ppf(0.95, DIM), DIM, DIM - CLASSES)
    assert result["fpr95"] == pytest.approx(expected, abs=0.03)
    assert result["f_at_c95"] == result["fpr95"]
    assert result["auoscr"] == result["auroc"]
