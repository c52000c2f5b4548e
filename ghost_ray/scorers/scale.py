"""Scaled activations."""

from __future__ import annotations

import warnings

import numpy as np

from ghost_ray.scorers._common import chunks, logsumexp
from ghost_ray.scorers.base import Batch, Floats, Scorer
from ghost_ray.scorers.registry import register


@register
class Scale(Scorer):
    """LSE(W · (f · eʳ) + b), r = Σ f / Σ (the largest (100 − p) % of f).

    Xu et al., *Scaling for Training Time and Post-hoc Out-of-distribution Detection Enhancement*, ICLR 2024,
    https://arxiv.org/abs/2310.00227. Nothing is fitted.

    Parameters
    ----------
    percentile : float, default 85
        p, in [0, 100).

    Notes
    -----
    The method is made for f ≥ 0, where 1 ≤ r ≤ D / (number of largest entries). With signed features (ViT, Swin) the
    quotient can explode or change its sign: r is held within ± that bound, and one warning is given.
    """

    name = "scale"
    needs_head = True

    def __init__(self, percentile: float = 85.0) -> None:
        if not 0 <= percentile < 100:
            raise ValueError(f"scale: percentile must lie in [0, 100), got {percentile}")
        self.percentile = percentile
        self._warned = False

    def score_finite(self, batch: Batch) -> Floats:
        dim = batch.embedding.shape[1]
        largest = max(1, dim - round(dim * self.percentile / 100))
        bound = dim / largest
        if not self._warned and (batch.embedding < 0).any():
            self._warned = True
            warnings.warn(
                f"scale is made for features ≥ 0; these are signed, so r is held within ±{bound:.3g}", stacklevel=2
            )
        energy = np.empty(len(batch))
        for part in chunks(len(batch), 4096):
            f = batch.embedding[part].astype(np.float64)
            top = np.partition(batch.embedding[part], dim - largest, axis=1)[:, dim - largest :]
            divisor = top.sum(axis=1, dtype=np.float64)
            r = np.divide(f.sum(axis=1), divisor, out=np.zeros(len(f)), where=divisor != 0)
            f *= np.exp(np.clip(r, -bound, bound))[:, None]
            energy[part] = logsumexp(self.head.logits(f))
        return energy
