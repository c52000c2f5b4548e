"""The distance of a sample from its class, and the GHOST score computed from it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ghost_ray.compiled import compiled, read_only
from ghost_ray.gaussians.fitted import Gaussians, as_embedding
from ghost_ray.rows import Floats, Head, Rows

SMALLEST_Z_SUM = 1e-30  # keeps γ finite, in float32 as well, for a sample that lies on its class's mean
_ROWS_A_THREAD = 2048  # below it, starting a thread costs more than it saves


class GhostScore(NamedTuple):
    """GHOST's result for each row."""

    s: Floats  # [n], the distance from the Gaussian of the predicted class
    gamma: Floats  # [n], −inf where that class has no Gaussian


def ghost_score(rows: Rows, gaussians: Gaussians, head: Head | None = None) -> GhostScore:
    """Return s and γ of rows under fitted Gaussians; the head gives the top logits of rows that have no logits.

    Raises ValueError for a NaN or an infinity in an embedding and for a NaN among the logits.
    """
    s = z_sum(rows.embedding, rows.pred, gaussians.mean, gaussians.inverse_std)
    return GhostScore(s, gamma(rows.top_logit(head), s, gaussians.present[rows.pred]))


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
    order = _by_class(pred, len(mean))
    parts = min(threads, len(s) // _ROWS_A_THREAD)
    if parts > 1:
        with ThreadPoolExecutor(parts) as pool:
            shares = np.array_split(order, parts)
            list(pool.map(lambda rows: _sum_z(embedding, rows, pred, mean, inv_std, s), shares))
    else:
        _sum_z(embedding, order, pred, mean, inv_std, s)
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


def _by_class(pred: NDArray[np.int64], classes: int) -> NDArray[np.intp]:
    """The rows in order of their class, so that μ and σ are read once per class and not once per row; numpy sorts by
    radix what fits into 16 bits."""
    narrow = pred.astype(np.uint16) if classes <= 1 << 16 else pred
    return read_only(np.argsort(narrow, kind="stable"))


@compiled(reassociate=True)
def _sum_z(
    embedding: NDArray[Any],
    order: NDArray[np.intp],
    pred: NDArray[np.int64],
    mean: NDArray[Any],
    inv_std: NDArray[Any],
    s: NDArray[np.float64],
) -> None:
    # Four rows at a time: one alone leaves the core waiting for memory. The last ones are repeated instead of using
    # another loop, which might round differently: so a row's sum does not depend on the other rows.
    last = len(order) - 1
    for start in range(0, len(order), 4):
        row_a, row_b = order[start], order[min(start + 1, last)]
        row_c, row_d = order[min(start + 2, last)], order[min(start + 3, last)]
        a, b, c, d = embedding[row_a], embedding[row_b], embedding[row_c], embedding[row_d]
        k_a, k_b, k_c, k_d = pred[row_a], pred[row_b], pred[row_c], pred[row_d]
        mean_a, mean_b, mean_c, mean_d = mean[k_a], mean[k_b], mean[k_c], mean[k_d]
        inv_a, inv_b, inv_c, inv_d = inv_std[k_a], inv_std[k_b], inv_std[k_c], inv_std[k_d]
        sum_a = sum_b = sum_c = sum_d = 0.0
        for i in range(embedding.shape[1]):
            sum_a += abs(np.float64(a[i]) - np.float64(mean_a[i])) * np.float64(inv_a[i])
            sum_b += abs(np.float64(b[i]) - np.float64(mean_b[i])) * np.float64(inv_b[i])
            sum_c += abs(np.float64(c[i]) - np.float64(mean_c[i])) * np.float64(inv_c[i])
            sum_d += abs(np.float64(d[i]) - np.float64(mean_d[i])) * np.float64(inv_d[i])
        s[row_a], s[row_b], s[row_c], s[row_d] = sum_a, sum_b, sum_c, sum_d
