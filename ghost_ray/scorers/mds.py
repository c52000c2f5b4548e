"""Mahalanobis distance to the nearest class."""

from __future__ import annotations

import numpy as np

from ghost_ray.rows import Floats, Rows, chunks
from ghost_ray.scorers._moments import ClassMoments, whitening
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Scorer, State


@register
class MDS(Scorer):
    """−min_c (f − μ_c)ᵀ Σ⁻¹ (f − μ_c), Σ the covariance within classes, pooled (divided by N).

    Lee et al., *A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks*,
    NeurIPS 2018, https://arxiv.org/abs/1807.03888; on the last embedding, without input perturbation. Over all
    labelled training samples, not only correct ones. No options. A singular Σ gets the smallest ridge that makes it
    invertible, said in ``ridge_``.
    """

    name = "mds"
    title = "MDS"
    fits_on_logits = False
    passes = 1
    keeps = ()

    def begin(self, pass_index: int) -> State:
        return ClassMoments(self.classes_, self.dim_)

    def end_pass(self, pass_index: int, state: State) -> None:
        assert isinstance(state, ClassMoments)
        rows = int(state.count.sum())
        if rows == 0:
            raise ValueError(f"{self.name}: no labelled training rows")
        present = state.count > 0
        self.mean_ = np.average(state.mean[present], axis=0, weights=state.count[present])
        self.whiten_, self.ridge_ = whitening(state.scatter / rows)
        # Around the global mean, so that ‖a‖² − 2⟨a,b⟩ + ‖b‖² has little to cancel.
        self.centres_: Floats = (state.mean[present] - self.mean_) @ self.whiten_

    def nearest(self, batch: Rows) -> Floats:
        """Squared Mahalanobis distance to the nearest class mean [B]."""
        squared = np.empty(len(batch))
        centre_norm = np.einsum("kd,kd->k", self.centres_, self.centres_)
        for part in chunks(len(batch), 2048):
            white = (batch.embedding[part].astype(np.float64) - self.mean_) @ self.whiten_
            norm = np.einsum("bd,bd->b", white, white)
            cross = white @ self.centres_.T
            squared[part] = norm + (centre_norm - 2 * cross).min(axis=1)
        return np.maximum(squared, 0.0)

    def score_finite(self, batch: Rows) -> Floats:
        return -self.nearest(batch)

    def notes(self) -> list[str]:
        if not self.ridge_:
            return []
        return [f"{self.name}: singular covariance, ridge of {self.ridge_:.0e} times the mean variance added"]
