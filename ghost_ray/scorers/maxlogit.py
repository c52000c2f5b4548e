"""Maximum logit."""

from __future__ import annotations

import numpy as np

from ghost_ray.rows import Floats, Rows
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Scorer


@register
class MaxLogit(Scorer):
    """max ℓ.

    Hendrycks et al., *Scaling Out-of-Distribution Detection for Real-World Settings*, ICML 2022,
    https://arxiv.org/abs/1911.11132. No options, nothing to fit.
    """

    name = "maxlogit"
    title = "MaxLogit"
    keeps = ()

    def score_finite(self, batch: Rows) -> Floats:
        scores: Floats = batch.logits.max(axis=1).astype(np.float64)
        return scores
