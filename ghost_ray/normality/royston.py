"""Royston's approximation of the Shapiro–Wilk weights and of the distribution of W.

P. Royston, "Remark AS R94: A remark on algorithm AS 181: the W-test for normality", Applied Statistics 44
(1995), https://doi.org/10.2307/2986146, in the double-precision form of ``scipy.stats.shapiro``: the normal
quantile is AS 111 (Beasley and Springer 1977) and the normal tail AS 66 (Hill 1973). Better approximations of
either exist, but p is so sensitive to 1 − W that only the same ones give the same p.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Values = TypeVar("Values", NDArray[np.float64], "torch.Tensor")

LARGEST_CALIBRATED_N = 5000  # beyond it p was never calibrated; W stays exact
SMALLEST_N = 3

# Polynomials, constant term first: the two outermost weights in 1/√n, …
_FIRST_WEIGHT = (0.0, 0.221157, -0.147981, -2.07119, 4.434685, -2.706056)
_SECOND_WEIGHT = (0.0, 0.042981, -0.293762, -1.752461, 5.682633, -3.582633)
# … the null distribution's location and log-scale in n up to 11, …
_SMALL_BOUND = (-2.273, 0.459)
_SMALL_LOCATION = (0.544, -0.39978, 0.025054, -0.0006714)
_SMALL_LOG_SCALE = (1.3822, -0.77857, 0.062767, -0.0020322)
# … and in log n from 12 up.
_LARGE_LOCATION = (-1.5861, -0.31082, -0.083751, 0.0038915)
_LARGE_LOG_SCALE = (-0.4803, -0.082676, 0.0030302)
_SMALLEST_P = 1e-19  # the answer for n ≤ 11 where W lies below the approximation's bound


class Weights(NamedTuple):
    """What W needs besides the data; depends on n alone."""

    a: NDArray[np.float64]  # [n], antisymmetric, for the data in ascending order; read-only
    squares: float  # Σ a²


@functools.lru_cache(maxsize=512)
def weights(n: int) -> Weights:
    """Return Royston's weights for n ≥ 3 samples."""
    if n == SMALLEST_N:
        upper = np.array([math.sqrt(0.5)])
    else:
        ranks = np.arange(1, n // 2 + 1, dtype=np.float64)
        m = -_normal_quantile((ranks - 0.375) / (n + 0.25))
        total = 2.0 * float(np.sum(m**2))
        rsn = 1.0 / math.sqrt(n)
        outer = [_polynomial(_FIRST_WEIGHT, rsn) + m[0] / math.sqrt(total)]
        if n > 5:
            outer.append(_polynomial(_SECOND_WEIGHT, rsn) + m[1] / math.sqrt(total))
        fixed = len(outer)
        upper = np.empty_like(m)
        upper[:fixed] = outer
        remaining = (total - 2.0 * np.sum(m[:fixed] ** 2)) / (1.0 - 2.0 * np.sum(upper[:fixed] ** 2))
        upper[fixed:] = m[fixed:] / math.sqrt(remaining)
    a = np.zeros(n)
    a[: len(upper)] = -upper
    a[n - len(upper) :] = upper[::-1]
    a.flags.writeable = False
    return Weights(a, float(np.sum(a**2)))


def statistic_and_p(
    total: Values, squares: Values, weighted: Values, n: int, weight_squares: float, xp: Any
) -> tuple[Values, Values]:
    """Turn the three sums of a sorted column into W and p.

    Parameters
    ----------
    total, squares, weighted : arrays of shape [d], float64
        Σ y, Σ y² and Σ a·y of each column, y centred near its median (so that Σ y² is at most twice the sum
        around the mean, and nothing is lost by subtracting). Columns are not constant.
    n : int
        Length of a column.
    weight_squares : float
        Σ a².
    xp : module
        ``numpy`` or ``torch``, whichever the arrays belong to.
    """
    scale = weight_squares * (squares - total * total / n)
    root = xp.sqrt(scale)
    # 1 − W as a product: the plain difference would lose the digits on which p depends as W approaches 1.
    complement = xp.clip((root - weighted) * (root + weighted) / scale, 0.0, 1.0)
    W = 1.0 - complement
    if n == SMALLEST_N:
        W = xp.clip(W, 0.75, 1.0)
        return W, xp.clip(1.0 - 6.0 / math.pi * xp.arccos(xp.sqrt(W)), 0.0, 1.0)
    y = xp.log(xp.clip(complement, 1e-300, None))
    if n <= 11:
        gap = _polynomial(_SMALL_BOUND, n) - y
        y = -xp.log(xp.clip(gap, 1e-300, None))
        location = _polynomial(_SMALL_LOCATION, n)
        log_scale = _polynomial(_SMALL_LOG_SCALE, n)
        p = _normal_tail((y - location) / math.exp(log_scale), xp)
        return W, xp.where(gap > 0.0, p, _SMALLEST_P)
    location = _polynomial(_LARGE_LOCATION, math.log(n))
    log_scale = _polynomial(_LARGE_LOG_SCALE, math.log(n))
    return W, _normal_tail((y - location) / math.exp(log_scale), xp)


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """Evaluate a polynomial, constant term first, at a number or an array."""
    value = 0.0
    for coefficient in reversed(coefficients):
        value = value * x + coefficient
    return value


def _normal_quantile(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard normal quantile of 0 < p < ½ (AS 111)."""
    q = p - 0.5
    r = q * q
    centre: NDArray[np.float64] = q * _polynomial((2.50662823884, -18.61500062529, 41.39119773534, -25.44106049637), r)
    centre /= _polynomial((1.0, -8.47351093090, 23.08336743743, -21.06224101826, 3.13082909833), r)
    r = np.sqrt(-np.log(p))
    tail: NDArray[np.float64] = -_polynomial((-2.78718931138, -2.29796479134, 4.85014127135, 2.32121276858), r)
    tail /= _polynomial((1.0, 3.54388924762, 1.63706781897), r)
    return np.where(np.abs(q) <= 0.42, centre, tail)


def _normal_tail(x: Values, xp: Any) -> Values:
    """Return P(Z > x) of the standard normal (AS 66)."""
    z = xp.clip(xp.abs(x), None, 40.0)
    y = 0.5 * z * z
    near = 0.5 - z * (
        0.398942280444
        - 0.399903438504
        * y
        / (y + 5.75885480458 - 29.8213557808 / (y + 2.62433121679 + 48.6959930692 / (y + 5.92885724438)))
    )
    far = z + 0.742380924027 + 30.789933034 / (z + 3.99019417011)
    far = z - 0.151679116635 + 5.29330324926 / (z + 4.8385912808 - 15.1508972451 / far)
    far = z - 3.8052e-8 + 1.00000615302 / (z + 3.98064794e-4 + 1.98615381364 / far)
    far = 0.398942280385 * xp.exp(-y) / far
    beyond = xp.where(x > 0.0, 38.0, 7.0)  # where the algorithm gives up and says 0 or 1
    tail = xp.where(z <= 1.28, near, xp.where(z <= beyond, far, 0.0))
    upper: Values = xp.where(x > 0.0, tail, 1.0 - tail)
    return upper
