"""Nearest-neighbour guidance."""

from __future__ import annotations

import numpy as np

from ghost_ray.rows import Floats, Rows
from ghost_ray.scorers._bank import Bank
from ghost_ray.scorers._common import normalise
from ghost_ray.scorers._sample import RowSample
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Scorer, State


class GuideRows(State):
    """A random sample of training embeddings g with their energies."""

    def __init__(self, sample: RowSample) -> None:
        self.sample = sample

    def add(self, batch: Rows) -> None:
        self.sample.update(batch.row_id, batch.embedding, batch.energy)

    def merge(self, other: GuideRows) -> None:
        self.sample.merge(other.sample)


@register
class NNGuide(Scorer):
    """LSE(ℓ) · mean of the k largest ⟨g, b_i⟩, bank b_i = g_i · LSE(ℓ_i) of training samples, g = f / ‖f‖₂.

    Park et al., *Nearest Neighbor Guidance for Out-of-Distribution Detection*, ICCV 2023,
    https://arxiv.org/abs/2309.14888.

    Parameters
    ----------
    k : int, default 100
        Neighbours averaged (the authors' code has 10).
    fraction : float, default 0.01
        Share of the training samples in the bank, at least ``k`` samples. Drawn uniformly: the leading rows of a store
        in class order would be a few classes only.
    seed : int, default 0
        Of the draw, which depends on nothing but the rows' identities.
    """

    name = "nnguide"
    title = "NNGuide"
    passes = 1
    keeps = (Bank,)

    def __init__(self, k: int = 100, fraction: float = 0.01, seed: int = 0) -> None:
        if k < 1 or not 0 < fraction <= 1:
            raise ValueError(f"{self.name}: k must be at least 1 and fraction in (0, 1], got {k} and {fraction}")
        self.k, self.fraction, self.seed = k, fraction, seed

    def begin(self, pass_index: int) -> State:
        return GuideRows(RowSample(self.name, self.k, self.fraction, self.seed))

    def end_pass(self, pass_index: int, state: State) -> None:
        assert isinstance(state, GuideRows)
        embedding, energy = state.sample.finish()
        self.bank_ = Bank((normalise(embedding) * energy[:, None]).astype(np.float32), "inner")

    def score_finite(self, batch: Rows) -> Floats:
        k = min(self.k, len(self.bank_))
        guidance = self.bank_.search(normalise(batch.embedding), k).mean(axis=1)
        scores: Floats = batch.energy * guidance
        return scores

    def notes(self) -> list[str]:
        said = f"{self.name}: bank of {len(self.bank_)} training samples, drawn with seed {self.seed}"
        if len(self.bank_) <= self.k:
            said += (
                f"; k={self.k} averages over all of them, so the score does not depend on which are near; with few "
                "training samples choose a smaller k and a larger fraction, nnguide:k=10:fraction=1"
            )
        return [said]
