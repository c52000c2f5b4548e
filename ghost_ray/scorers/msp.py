"""Maximum softmax probability."""

from __future__ import annotations

import numpy as np

from ghost_ray.scorers.base import Batch, Floats, Scorer
from ghost_ray.scorers.registry import register


@register
class MSP(Scorer):
    """max softmax(ℓ).

    Hendrycks and Gimpel, *A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
    Networks*, ICLR 2017, https://arxiv.org/abs/1610.02136. No options, nothing to fit.
    """

    name = "msp"

    def score_finite(self, batch: Batch) -> Floats:
        scores: Floats = np.exp(batch.logits.max(axis=1) - batch.energy)
        return scores
