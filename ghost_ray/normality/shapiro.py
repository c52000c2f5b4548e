"""The Shapiro–Wilk test for every column of a matrix, at little more than the cost of sorting it."""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, overload

import numpy as np
from numpy.typing import NDArray

from ghost_ray.compiled import compiled, read_only
from ghost_ray.normality.royston import LARGEST_CALIBRATED_N, SMALLEST_N, statistic_and_p, weights

if TYPE_CHECKING:
    import torch

_TILE_BYTES = 1 << 19  # half a megabyte: a tile stays in a core's second-level cache from transpose to sums
_WIDEST_TILE = 128
_ROWS_AT_A_TIME = 16  # a cache line of float32, so that the transpose writes whole lines


@dataclass(frozen=True)
class ColumnTests:
    """One Shapiro–Wilk test per column.

    Where `degenerate` is set there was nothing to test: W and p are 1 by convention, and the column belongs to
    no family of tests. Nothing here is ever NaN.
    """

    W: NDArray[np.float64]  # [d]
    p: NDArray[np.float64]  # [d]
    degenerate: NDArray[np.bool_]  # [d], constant columns, or all of them if n < 3


@overload
def shapiro_wilk(x: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
@overload
def shapiro_wilk(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]: ...
def shapiro_wilk(x: Any) -> Any:
    """Test each column of x for normality, as ``scipy.stats.shapiro`` does.

    W and p agree with scipy's to 1e-8 and, relatively, to 1e-6. Unlike scipy's they do not depend on the unit of
    measurement: scipy takes a range below 1e-19 for zero, here only equal values are.

    Parameters
    ----------
    x : array or torch.Tensor of shape [n, d], n ≥ 3, float32 or float64
        One sample per row. Other real types are converted to float64. A tensor is processed on its own device.

    Returns
    -------
    W, p : arrays (or tensors) of shape [d], float64
        A constant column has W = 1 and p = 1.

    Raises
    ------
    ValueError
        If n < 3, or a column holds NaN or infinity.

    Warns
    -----
    UserWarning
        If n > 5000: W is right, but p is outside the range for which it was calibrated.
    """
    _require_matrix(x)
    if x.shape[0] < SMALLEST_N:
        raise ValueError(f"Shapiro–Wilk needs at least {SMALLEST_N} samples per column, got {x.shape[0]}")
    _warn_if_uncalibrated(x.shape[0])
    if _is_tensor(x):
        from ghost_ray.normality.on_device import shapiro_wilk_tensor

        return shapiro_wilk_tensor(x)
    W, p, _ = _shapiro_wilk_tiled(_as_real(x))
    return W, p


def test_columns(x: NDArray[Any]) -> ColumnTests:
    """Test each column of x that can be tested, and say which cannot.

    Parameters
    ----------
    x : array of shape [n, d], any n
        The samples of one class; as for `shapiro_wilk`, but fewer than three samples are no error.
    """
    _require_matrix(x)
    n, d = x.shape
    if n < SMALLEST_N:
        if not np.isfinite(x).all():
            raise ValueError("x holds NaN or infinity")
        return ColumnTests(np.ones(d), np.ones(d), np.ones(d, dtype=np.bool_))
    _warn_if_uncalibrated(n)
    return ColumnTests(*_shapiro_wilk_tiled(_as_real(x)))


test_columns.__test__ = False  # type: ignore[attr-defined]  # a name pytest would otherwise collect


def _shapiro_wilk_tiled(
    x: NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return W, p and which columns are constant."""
    n, d = x.shape
    a, weight_squares = weights(n)
    total, squares, weighted = np.empty(d), np.empty(d), np.empty(d)
    width = min(max(_TILE_BYTES // (n * x.itemsize), 1), _WIDEST_TILE)
    scratch = np.empty((width, n), dtype=x.dtype)
    for first in range(0, d, width):
        columns = slice(first, min(first + width, d))
        tile = scratch[: columns.stop - first]
        _transpose_into(tile, x, first)
        tile.sort(axis=1)
        bad = _sums_of_sorted(tile, a, total[columns], squares[columns], weighted[columns])
        if bad >= 0:
            raise ValueError(f"column {first + bad} holds NaN or infinity")
    constant = squares == 0.0
    squares[constant] = 1.0  # any positive number: W and p are overwritten
    W, p = statistic_and_p(total, squares, weighted, n, weight_squares, np)
    W[constant] = 1.0
    p[constant] = 1.0
    return W, p, constant


@compiled()
def _transpose_into(tile: NDArray[Any], x: NDArray[Any], first: int) -> None:
    """Copy columns first, first + 1, … of x into the rows of the tile."""
    width, n = tile.shape
    whole = n - n % _ROWS_AT_A_TIME
    for row in range(0, whole, _ROWS_AT_A_TIME):
        for column in range(width):
            for step in range(_ROWS_AT_A_TIME):
                tile[column, row + step] = x[row + step, first + column]
    for row in range(whole, n):
        for column in range(width):
            tile[column, row] = x[row, first + column]


@compiled()
def _scale_of_range(low: float, high: float) -> float:
    """Return the power of two that brings the range near 1, or 0 if an end is NaN or infinite.

    A function of its own, since ``high - low`` must not be regrouped by the sums that follow.
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return 0.0
    # The range of finite numbers may overflow; the clamp keeps the factor a normal number, and squares in bounds.
    exponent = math.frexp(high - low)[1] if math.isfinite(high - low) else 1000
    return math.ldexp(1.0, -min(max(exponent, -1000), 1000))


@compiled()
def _centred(value: float, scale: float, centre: float) -> float:
    """Return value·scale − centre, which regrouped as a scaled difference might overflow."""
    return value * scale - centre


@compiled(reassociate=True)
def _sums_of_sorted(
    tile: NDArray[Any],
    a: NDArray[np.float64],
    total: NDArray[np.float64],
    squares: NDArray[np.float64],
    weighted: NDArray[np.float64],
) -> int:
    """Write Σ y, Σ y² and Σ a·y of each sorted row; return the first row with NaN or infinity, or −1.

    y is the value less the row's middle one in units of a power of two near the row's range: the unit is exact,
    and no square over- or underflows. Equal values give y = 0 and so Σ y² = 0, unequal ones never do.
    """
    n = tile.shape[1]
    for row in range(tile.shape[0]):
        scale = _scale_of_range(np.float64(tile[row, 0]), np.float64(tile[row, n - 1]))
        if scale == 0.0:
            return row
        centre = tile[row, n // 2] * scale
        row_total = 0.0
        row_squares = 0.0
        row_weighted = 0.0
        for i in range(n):
            y = _centred(tile[row, i], scale, centre)
            row_total += y
            row_squares += y * y
            row_weighted += a[i] * y
        total[row] = row_total
        squares[row] = row_squares
        weighted[row] = row_weighted
    return -1


def _require_matrix(x: Any) -> None:
    if getattr(x, "ndim", None) != 2:
        raise ValueError(f"x must have shape [n, d], got {getattr(x, 'shape', type(x).__name__)}")


def _as_real(x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype.kind not in "fiub":
        raise ValueError(f"x must hold real numbers, got {x.dtype}")
    dtype = x.dtype if x.dtype in (np.float32, np.float64) else np.float64
    return read_only(np.ascontiguousarray(x, dtype=dtype))


def _warn_if_uncalibrated(n: int) -> None:
    if n > LARGEST_CALIBRATED_N:
        warnings.warn(
            f"p is not calibrated beyond n = {LARGEST_CALIBRATED_N}, here n = {n}; test a random subset instead",
            stacklevel=3,
        )


def _is_tensor(x: object) -> TypeGuard[torch.Tensor]:
    loaded = sys.modules.get("torch")  # who passes a tensor has imported torch already
    return loaded is not None and isinstance(x, loaded.Tensor)
