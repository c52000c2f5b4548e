"""Maximum-likelihood Weibull fits, many at once."""

from __future__ import annotations

import numpy as np

from ghost_ray.rows import Floats

STEEPEST = 1e8  # shape of a sample whose values are all equal
ITERATIONS = 100


def fit_weibull(values: Floats) -> tuple[Floats, Floats]:
    """Shape κ and scale λ of a two-parameter Weibull distribution for each row of positive values [n, t].

    The likelihood equation Σ xᵏ ln x / Σ xᵏ − 1/κ − mean(ln x) = 0 rises in κ; it is solved by Newton's steps in logs
    relative to the largest value, halved or doubled at most.

    Returns
    -------
    shape, scale : ndarray [n]
    """
    largest = values.max(axis=1, keepdims=True)
    y = np.log(values / largest)
    mean = y.mean(axis=1)
    spread = y.std(axis=1)
    shape = np.minimum(np.pi / np.sqrt(6) / np.maximum(spread, 1e-300), STEEPEST)
    for _ in range(ITERATIONS):
        weight = np.exp(shape[:, None] * y)
        weight /= weight.sum(axis=1, keepdims=True)
        first = (weight * y).sum(axis=1)
        second = (weight * (y - first[:, None]) ** 2).sum(axis=1)
        step = (first - 1 / shape - mean) / (second + shape**-2.0)
        moved = np.minimum(np.clip(shape - step, shape / 2, shape * 2), STEEPEST)
        settled = np.abs(moved - shape) <= 1e-13 * shape
        shape = moved
        if settled.all():
            break
    log_power_mean = np.log(np.exp(shape[:, None] * y).mean(axis=1)) / shape
    scale: Floats = largest[:, 0] * np.exp(log_power_mean)
    return shape, scale


def weibull_log_exponent(x: Floats, shape: Floats, scale: Floats) -> Floats:
    """κ·log(x/λ), which is log(−log(1 − F(x))): it orders as F does, and neither underflows nor saturates.

    −inf at x ≤ 0.
    """
    with np.errstate(divide="ignore"):
        result: Floats = shape * np.log(np.maximum(x, 0.0) / scale)
    return result


def weibull_exponent(x: Floats, shape: Floats, scale: Floats) -> Floats:
    """(x/λ)ᵏ, which is −log of the survival function; 0 at x ≤ 0, +inf where it overflows."""
    with np.errstate(over="ignore"):
        result: Floats = np.exp(weibull_log_exponent(x, shape, scale))
    return result
