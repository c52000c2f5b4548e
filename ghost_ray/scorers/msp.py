"""Maximum softmax probability."""

from __future__ import annotations

import numpy as np

from ghost_ray.rows import Floats, Rows
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Scorer


@register
class MSP(Scorer):
    """max softmax(ℓ).

    Hendrycks and Gimpel, *A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
    Networks*, ICLR 2017, https://arxiv.org/abs/1610.02136. No options, nothing to fit.
    """

    name = "msp"
    title = "MSP"
    keeps = ()

    def score_finite(self, batch: Rows) -> Floats:
        scores: Floats = np.exp(batch.logits.max(axis=1) - batch.energy)
        return scores
