"""Relative Mahalanobis distance."""

from __future__ import annotations

import numpy as np

from ghost_ray.rows import Floats, Rows, chunks
from ghost_ray.scorers._moments import ClassMoments, whitening
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.mds import MDS
from ghost_ray.scorers.scorer import State


@register
class RMDS(MDS):
    """max_c [−M_c(f) + M_0(f)], M_c as in ``mds``, M_0 from the global mean and covariance (divided by N).

    Ren et al., *A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection*, 2021,
    https://arxiv.org/abs/2106.09022. Over all labelled training samples. No options. The global covariance is the one
    within classes plus the one between their means, so one pass is enough.
    """

    name = "rmds"
    title = "RMDS"
    keeps = ()

    def end_pass(self, pass_index: int, state: State) -> None:
        super().end_pass(pass_index, state)
        assert isinstance(state, ClassMoments)
        between = (state.mean - self.mean_) * np.sqrt(state.count)[:, None]
        covariance = (state.scatter + between.T @ between) / state.count.sum()
        self.background_, background_ridge = whitening(covariance)
        self.ridge_ = max(self.ridge_, background_ridge)

    def score_finite(self, batch: Rows) -> Floats:
        background = np.empty(len(batch))
        for part in chunks(len(batch), 2048):
            white = (batch.embedding[part].astype(np.float64) - self.mean_) @ self.background_
            background[part] = np.einsum("bd,bd->b", white, white)
        return background - self.nearest(batch)
