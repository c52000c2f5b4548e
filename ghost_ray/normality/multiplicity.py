"""Holm's step-down correction: of one array by statsmodels, of tens of millions of tests in parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 20  # ranks processed at a time, so that temporaries stay small for any size of the family


def holm(p: NDArray[np.float64], alpha: float) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Correct p-values for multiple testing by Holm's step-down procedure.

    With p₍₀₎ ≤ p₍₁₎ ≤ … of m tests, the adjusted p of rank i is max over j ≤ i of (m − j)·p₍ⱼ₎, at most 1, and a
    hypothesis is rejected if p₍ⱼ₎ ≤ α/(m − j) for its own rank and all before it.

    Parameters
    ----------
    p : array of shape [m], 0 ≤ p ≤ 1
        One p-value per test; may be empty. Not modified.
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
    p = np.asarray(p, dtype=np.float64)
    _check(p, alpha)
    from statsmodels.stats.multitest import multipletests  # takes a second to import

    rejected, adjusted, *_ = multipletests(p, alpha, method="holm")
    return rejected, adjusted


class HolmFamily:
    """Holm's correction for a family of tests, returned in parts; the same numbers as :func:`holm`.

    It is meant for a family whose tests are spread over many blocks, and for thousands of small families one after the
    other: statsmodels collects garbage at each call, which takes a thousand times as long as correcting one class.

    Adjusted p and rejection depend only on the p-value: equal values have equal results. So only the sorted values and
    their adjusted values are kept, and of those only the ones adjusted to less than 1.

    Parameters
    ----------
    p : array of shape [m], float64, 0 ≤ p ≤ 1
        All p-values of the family. Sorted in place.
    alpha : float
        The family-wise error rate, 0 < α < 1.
    """

    def __init__(self, p: NDArray[np.float64], alpha: float) -> None:
        _check(p, alpha)
        m = len(p)
        p.sort()
        self._kept_from = np.inf  # the smallest p that is not rejected
        adjusted = []
        running = 0.0
        for first in range(0, m, _CHUNK):
            values = p[first : first + _CHUNK]
            remaining = np.arange(m - first, m - first - len(values), -1)
            kept = values > alpha / remaining
            if kept.any():
                self._kept_from = min(self._kept_from, float(values[kept.argmax()]))
            scaled = values * remaining
            scaled[0] = max(scaled[0], running)
            np.maximum.accumulate(scaled, out=scaled)
            running = float(scaled[-1])
            below = int(np.searchsorted(scaled, 1.0))
            adjusted.append(scaled[:below])
            if below < len(scaled):
                break
        self._adjusted = np.concatenate([*adjusted, [1.0]])
        self._p = p[: len(self._adjusted) - 1]

    def __call__(self, p: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Rejected, [n] bool, and adjusted p, [n] float64, of p-values [n] that are among the family's."""
        return p < self._kept_from, self._adjusted[np.searchsorted(self._p, p)]


def _check(p: NDArray[np.float64], alpha: float) -> None:
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must lie between 0 and 1, got {alpha}")
    if p.ndim != 1:
        raise ValueError(f"p must have shape [m], got {p.shape}")
    if len(p) and not (p.min() >= 0.0 and p.max() <= 1.0):  # false for NaN as well
        raise ValueError("p must lie between 0 and 1, and not be NaN")
