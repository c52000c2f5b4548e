"""How far a sample lies from its class, and the GHOST score made of it."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ghost_ray._compiled import compiled, read_only
from ghost_ray.gaussians.model import as_embedding

SMALLEST_Z_SUM = 1e-30  # keeps γ finite, in float32 as well, for a sample that lies on its class's mean
_ROWS_A_THREAD = 2048  # below it, starting a thread costs more than it saves


def z_sum(
    embedding: NDArray[Any],
    pred: NDArray[Any],
    mean: NDArray[Any],
    inv_std: NDArray[Any],
    threads: int = 1,
) -> NDArray[np.float64]:
    """Return each sample's distance s = Σ_d |φ_d − μ_k,d| / σ_k,d from the Gaussian of its predicted class k.

    Parameters
    ----------
    embedding : array of shape [B, D], float32 or float64
    pred : array of shape [B], integer
        The predicted class of each sample.
    mean, inv_std : arrays of shape [K, D]
        μ and 1/σ, with 0 for a dimension that is to add nothing; see `Gaussians.inverse_std`.
    threads : int, default=1
        How many threads share the rows. The result is the same for any number.

    Returns
    -------
    s : array of shape [B], float64, finite and ≥ 0

    Raises
    ------
    ValueError
        If shapes do not match, a prediction is out of range, or an embedding holds NaN or infinity.
    """
    if mean.ndim != 2 or mean.shape != inv_std.shape:
        raise ValueError(f"mean and inv_std must both have shape [K, D], got {mean.shape} and {inv_std.shape}")
    embedding = as_embedding(embedding, mean.shape[1])
    pred = np.asarray(pred)
    if pred.shape != embedding.shape[:1] or pred.dtype.kind not in "iu":
        raise ValueError(f"pred must be [{len(embedding)}] integers, got {pred.shape} {pred.dtype}")
    if len(pred) and not 0 <= int(pred.min()) <= int(pred.max()) < len(mean):
        raise ValueError(f"pred must lie in 0 … {len(mean) - 1}, got {pred.min()} … {pred.max()}")
    pred = read_only(pred.astype(np.int64, copy=False))
    mean, inv_std = read_only(np.ascontiguousarray(mean)), read_only(np.ascontiguousarray(inv_std))
    s = np.empty(len(embedding))
    parts = min(threads, len(s) // _ROWS_A_THREAD)
    if parts > 1:
        bounds = np.linspace(0, len(s), parts + 1).astype(int)
        slices = [slice(start, stop) for start, stop in itertools.pairwise(bounds)]
        with ThreadPoolExecutor(parts) as pool:
            list(pool.map(lambda rows: _sum_z(embedding[rows], pred[rows], mean, inv_std, s[rows]), slices))
    else:
        _sum_z(embedding, pred, mean, inv_std, s)
    for row in np.flatnonzero(~np.isfinite(s)):
        if not np.isfinite(embedding[row]).all():
            raise ValueError(f"the embedding in row {row} holds NaN or infinity")
        s[row] = np.finfo(np.float64).max
    return s


def gamma(top_logit: NDArray[Any], z_sum: NDArray[np.float64], has_gaussian: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the GHOST score γ = z_k / s: higher is more known.

    Parameters
    ----------
    top_logit : array of shape [B]
        The largest logit z_k of each sample; may be negative.
    z_sum : array of shape [B]
        s of each sample, see the function of that name. Below 1e-30, also at 0 where a sample lies on the mean or
        every dimension is constant, it counts as 1e-30: the score is then huge and has the logit's sign.
    has_gaussian : array of shape [B], bool
        Whether the predicted class has a Gaussian.

    Returns
    -------
    gamma : array of shape [B], float64
        Finite, or −inf where the predicted class has no Gaussian. Never NaN.
    """
    logit = np.asarray(top_logit, dtype=np.float64)
    if np.isnan(logit).any():
        raise ValueError(f"the top logit in row {int(np.isnan(logit).argmax())} is NaN")
    largest = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        score = np.clip(logit, -largest, largest) / np.maximum(z_sum, SMALLEST_Z_SUM)
    return np.where(has_gaussian, np.clip(score, -largest, largest), -np.inf)


@compiled(reassociate=True)
def _sum_z(
    embedding: NDArray[Any],
    pred: NDArray[np.int64],
    mean: NDArray[Any],
    inv_std: NDArray[Any],
    s: NDArray[np.float64],
) -> None:
    for row in range(len(embedding)):
        k = pred[row]
        total = 0.0
        for d in range(embedding.shape[1]):
            total += abs(np.float64(embedding[row, d]) - np.float64(mean[k, d])) * np.float64(inv_std[k, d])
        s[row] = total
