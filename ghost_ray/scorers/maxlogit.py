"""Maximum logit."""

from __future__ import annotations

import numpy as np

from ghost_ray.scorers.base import Batch, Floats, Scorer
from ghost_ray.scorers.registry import register


@register
class MaxLogit(Scorer):
    """max ℓ.

    Hendrycks et al., *Scaling Out-of-Distribution Detection for Real-World Settings*, ICML 2022,
    https://arxiv.org/abs/1911.11132. No options, nothing to fit.
    """

    name = "maxlogit"

    def score_finite(self, batch: Batch) -> Floats:
        scores: Floats = batch.logits.max(axis=1).astype(np.float64)
        return scores
