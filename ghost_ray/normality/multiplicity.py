"""Holm's step-down correction, for families of tens of millions of tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 20  # ranks worked at a time, so that temporaries stay small whatever the family's size


def holm(p: NDArray[np.float64], alpha: float) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Correct p-values for multiple testing by Holm's step-down procedure.

    With p₍₀₎ ≤ p₍₁₎ ≤ … of m tests, the adjusted p of rank i is max over j ≤ i of (m − j)·p₍ⱼ₎, at most 1, and a
    hypothesis is rejected if p₍ⱼ₎ ≤ α/(m − j) for its own rank and all before it. The answer is that of
    ``statsmodels.stats.multitest.multipletests(method="holm")``.

    Only p-values small enough to be adjusted to less than 1 are put in order. Where few are rejected this takes
    little more memory than the answer; in the worst case, one index a test.

    Parameters
    ----------
    p : array of shape [m], 0 ≤ p ≤ 1
        One p-value a test; may be empty. Left as it is.
    alpha : float
        The family-wise error rate, 0 < α < 1.

    Returns
    -------
    rejected : array of shape [m], bool
    adjusted : array of shape [m], float64

    References
    ----------
    S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6
    (1979).
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must lie between 0 and 1, got {alpha}")
    p = np.asarray(p, dtype=np.float64)
    if p.ndim != 1:
        raise ValueError(f"p must have shape [m], got {p.shape}")
    m = len(p)
    rejected = np.zeros(m, dtype=np.bool_)
    adjusted = np.ones(m)
    if m == 0:
        return rejected, adjusted
    if not (p.min() >= 0.0 and p.max() <= 1.0):  # false for NaN as well
        raise ValueError("p must lie between 0 and 1, and not be NaN")

    order = _ranks_that_matter(p)
    running = 0.0
    rejecting = True
    for first in range(0, len(order), _CHUNK):
        ranked = order[first : first + _CHUNK]
        values = p[ranked]
        remaining = np.arange(m - first, m - first - len(ranked), -1)
        if rejecting:
            kept = values > alpha / remaining
            count = int(kept.argmax()) if kept.any() else len(kept)
            rejected[ranked[:count]] = True
            rejecting = count == len(kept)
        values *= remaining
        values[0] = max(values[0], running)
        np.maximum.accumulate(values, out=values)
        running = float(values[-1])
        adjusted[ranked] = np.minimum(values, 1.0)
    return rejected, adjusted


def _ranks_that_matter(p: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the indices of p in ascending order, leaving out a tail that is adjusted to 1 in any case.

    If c of m values lie below v and (m − c)·v ≥ 1, then the smallest value from v up is adjusted to 1 and so are
    all after it.
    """
    m = len(p)
    bound = 2.0 / m
    while bound < 1.0:
        small = p < bound
        count = int(np.count_nonzero(small))
        if (m - count) * bound >= 1.0:
            if 2 * count > m:
                break
            candidates = np.flatnonzero(small)
            del small
            return candidates[np.argsort(p[candidates], kind="stable")]
        bound *= 4.0
    return np.argsort(p)
