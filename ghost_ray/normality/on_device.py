"""The same Shapiro–Wilk test for torch tensors, on the device that they are on."""

from __future__ import annotations

import torch

from ghost_ray.normality.royston import statistic_and_p, weights

_BLOCK_BYTES = 1 << 28  # what one block of columns may take in float64; the sort needs several times that


def shapiro_wilk_tensor(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return W and p of each column of x [n, d], n ≥ 3; see `ghost_ray.normality.shapiro_wilk`."""
    if x.is_complex():
        raise ValueError(f"x must hold real numbers, got {x.dtype}")
    x = x.detach()
    if x.dtype not in (torch.float32, torch.float64):
        x = x.double()
    n, d = x.shape
    W = torch.ones(d, dtype=torch.float64, device=x.device)
    p = torch.ones_like(W)
    width = max(_BLOCK_BYTES // (8 * n), 1)
    for first in range(0, d, width):
        block = slice(first, first + width)
        W[block], p[block] = _test_block(x[:, block], first)
    return W, p


def _test_block(columns: torch.Tensor, first: int) -> tuple[torch.Tensor, torch.Tensor]:
    n = columns.shape[0]
    values = columns.T.contiguous().sort(dim=1).values.double()
    low, high = values[:, 0], values[:, -1]
    bad = (~(low.isfinite() & high.isfinite())).nonzero()
    if len(bad):
        raise ValueError(f"column {first + int(bad[0])} holds NaN or infinity")
    # The same exact power of two as on the CPU: the range comes near 1, and no square over- or underflows.
    extent = high - low
    exponent = torch.where(extent.isinf(), 1000, torch.frexp(extent).exponent).clip(-1000, 1000)
    scale = torch.ldexp(torch.ones_like(low), -exponent)[:, None]
    y = values * scale - values[:, n // 2, None] * scale
    a, weight_squares = weights(n)
    squares = (y * y).sum(dim=1)
    constant = squares == 0.0
    weighted = y @ torch.tensor(a, device=y.device)
    W, p = statistic_and_p(y.sum(dim=1), torch.where(constant, 1.0, squares), weighted, n, weight_squares, torch)
    return torch.where(constant, 1.0, W), torch.where(constant, 1.0, p)
