"""Virtual-logit matching."""

from __future__ import annotations

from typing import Self

import numpy as np

from ghost_ray.rows import Floats, Head, Rows, chunks
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Scorer, State


class Scatter(State):
    """Σ (f − u)(f − u)ᵀ."""

    def __init__(self, origin: Floats) -> None:
        self.origin = origin
        self.rows = 0
        self.scatter: Floats = np.zeros((len(origin), len(origin)))

    def add(self, batch: Rows) -> None:
        x = batch.embedding.astype(np.float64) - self.origin
        self.rows += len(batch)
        self.scatter = self.scatter + x.T @ x

    def merge(self, other: Scatter) -> None:
        self.rows += other.rows
        self.scatter = self.scatter + other.scatter


class Sums(State):
    """Sums of the largest logit and of the residual norm."""

    def __init__(self, scorer: ViM) -> None:
        self.scorer = scorer
        self.logit = 0.0
        self.residual = 0.0

    def add(self, batch: Rows) -> None:
        self.logit += float(batch.logits.max(axis=1).sum(dtype=np.float64))
        self.residual += float(self.scorer.residual(batch).sum())

    def merge(self, other: Sums) -> None:
        self.logit += other.logit
        self.residual += other.residual


@register
class ViM(Scorer):
    """LSE(ℓ) − a · ‖Rᵀ(f − u)‖.

    u = −W⁺b is where all logits vanish as nearly as possible; R are the eigenvectors of the second moment of f − u
    beyond the d largest; a = mean(max ℓ) / mean‖Rᵀ(f − u)‖ over training. Wang et al., *ViM: Out-Of-Distribution with
    Virtual-logit Matching*, CVPR 2022, https://arxiv.org/abs/2203.10807. As there, the moment is taken about u and not
    about the mean.

    Parameters
    ----------
    d : int or None, default None
        Dimension of the principal space; None is 1000 if D ≥ 2048, 512 if D ≥ 768 and D/2 otherwise, as in the
        authors' code (OpenOOD's has 256). d ≥ D leaves no residual and is refused. Where training has no residual at
        all, a = 0.
    """

    name = "vim"
    title = "ViM"
    needs_head = True
    passes = 2
    keeps = ()

    def __init__(self, d: int | None = None) -> None:
        if d is not None and d < 1:
            raise ValueError(f"{self.name}: d must be at least 1, got {d}")
        self.d = d

    def bind(self, classes: int, dim: int, head: Head | None = None) -> Self:
        super().bind(classes, dim, head)
        default = 1000 if dim >= 2048 else 512 if dim >= 768 else dim // 2
        self.principal_ = default if self.d is None else self.d
        if self.principal_ >= dim:
            raise ValueError(
                f"{self.name}: d={self.principal_} leaves no residual of D={dim} dimensions; choose d < {dim}"
            )
        # Singular values of W that are zero up to float32 rounding must not be inverted.
        zero = max(classes, dim) * float(np.finfo(np.float32).eps)
        self.origin_: Floats = -np.linalg.pinv(self.head.weight.astype(np.float64), rcond=zero) @ self.head.bias
        return self

    def begin(self, pass_index: int) -> State:
        return Scatter(self.origin_) if pass_index == 0 else Sums(self)

    def end_pass(self, pass_index: int, state: State) -> None:
        if isinstance(state, Scatter):
            if state.rows == 0:
                raise ValueError(f"{self.name}: no labelled training rows")
            _, vectors = np.linalg.eigh(state.scatter / state.rows)
            self.residual_space_: Floats = np.ascontiguousarray(vectors[:, : self.dim_ - self.principal_])
        elif isinstance(state, Sums):
            self.alpha_ = state.logit / state.residual if state.residual > 0 else 0.0

    def residual(self, batch: Rows) -> Floats:
        """‖Rᵀ(f − u)‖ of each row [B]."""
        norm = np.empty(len(batch))
        for part in chunks(len(batch), 2048):
            beside = (batch.embedding[part].astype(np.float64) - self.origin_) @ self.residual_space_
            norm[part] = np.sqrt(np.einsum("bd,bd->b", beside, beside))
        return norm

    def score_finite(self, batch: Rows) -> Floats:
        return batch.energy - self.alpha_ * self.residual(batch)
