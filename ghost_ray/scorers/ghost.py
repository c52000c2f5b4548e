"""GHOST: the top logit over the distance from the predicted class's Gaussian."""

from __future__ import annotations

from ghost_ray.gaussians import Accumulator, Gaussians, ghost_score
from ghost_ray.rows import Floats, Rows
from ghost_ray.scorers._common import listed
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Scorer, State


class CorrectRows(State):
    """Count, mean and spread of each class and dimension over correctly classified rows."""

    def __init__(self, classes: int, dim: int) -> None:
        self.accumulator = Accumulator.empty(classes, dim)

    def add(self, batch: Rows) -> None:
        self.accumulator.update(batch.embedding, batch.label, where=batch.correct)

    def merge(self, other: CorrectRows) -> None:
        self.accumulator.merge(other.accumulator)


@register
class Ghost(Scorer):
    """γ = ℓ_k / Σ_d |f_d − μ_k,d| / σ_k,d with k the predicted class.

    Rabinowitz et al., *GHOST: Gaussian Hypothesis Open-Set Technique*, AAAI 2025, https://arxiv.org/abs/2502.03359.
    μ and σ (with N − 1) are of the *correctly classified* training samples of a class. A dimension that is constant
    within a class adds nothing; a class with fewer than two such samples has no Gaussian and samples predicted as it
    score −inf. No options.
    """

    name = "ghost"
    title = "GHOST"
    rival = False
    fits_on_logits = False
    passes = 1
    keeps = (Gaussians,)

    gaussians_: Gaussians

    def begin(self, pass_index: int) -> State:
        return CorrectRows(self.classes_, self.dim_)

    def end_pass(self, pass_index: int, state: State) -> None:
        assert isinstance(state, CorrectRows)
        self.gaussians_ = state.accumulator.finish()

    def score_finite(self, batch: Rows) -> Floats:
        return self.score_of_gamma(ghost_score(batch, self.gaussians_).gamma, batch)

    def score_of_gamma(self, gamma: Floats, batch: Rows) -> Floats:
        """Scores [B] of rows whose γ is known already."""
        return gamma

    def notes(self) -> list[str]:
        missing = self.gaussians_.missing
        if not len(missing):
            return []
        return [f"{self.name}: {listed(missing)} without a Gaussian, scored −inf"]
