"""Scaled activations."""

from __future__ import annotations

import warnings

import numpy as np

from ghost_ray.rows import Floats, Rows, chunks, logsumexp
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Scorer


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
    quotient can explode or change its sign: r is limited to ± that bound, and one warning is given.
    """

    name = "scale"
    title = "SCALE"
    needs_head = True
    keeps = ()

    def __init__(self, percentile: float = 85.0) -> None:
        if not 0 <= percentile < 100:
            raise ValueError(f"{self.name}: percentile must lie in [0, 100), got {percentile}")
        self.percentile = percentile
        self._warned = False

    def score_finite(self, batch: Rows) -> Floats:
        dim = batch.embedding.shape[1]
        largest = max(1, dim - round(dim * self.percentile / 100))
        bound = dim / largest
        if not self._warned and (batch.embedding < 0).any():
            self._warned = True
            warnings.warn(
                f"{self.name} is made for features ≥ 0; these are signed, so r is held within ±{bound:.3g}",
                stacklevel=2,
            )
        energy, bias = np.empty(len(batch)), self.head.bias.astype(np.float64)
        logits = batch.logits if batch.has_logits else self.head.logits(batch.embedding)
        for part in chunks(len(batch)):
            f = batch.embedding[part]
            divisor = np.partition(f, dim - largest, axis=1)[:, dim - largest :].sum(axis=1, dtype=np.float64)
            r = np.divide(f.sum(axis=1, dtype=np.float64), divisor, out=np.zeros(len(f)), where=divisor != 0)
            # One factor for all entries of f scales W · f as well, which the logits hold: no second matrix product.
            scaled = logits[part].astype(np.float64) - bias
            scaled *= np.exp(np.clip(r, -bound, bound))[:, None]
            energy[part] = logsumexp(scaled + bias)
        return energy
