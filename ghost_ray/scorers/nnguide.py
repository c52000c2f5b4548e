"""Nearest-neighbour guidance."""

from __future__ import annotations

import numpy as np

from ghost_ray.rows import Floats, Rows
from ghost_ray.scorers._bank import Bank
from ghost_ray.scorers._common import normalise
from ghost_ray.scorers._sample import RowSample
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Scorer, State

MOST_K, FEWEST_K, FRACTION = 100, 10, 0.01  # the benchmark's k and share, and the authors' k for a bank of all


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
    k : int or None, default None
        Neighbours averaged; None is 100, or 10 with a bank of all samples or of fewer than 1,000.
    fraction : float or None, default None
        Share of the training samples in the bank, at least ``k`` samples; None is 0.01, or 1 where that has fewer than
        10·k samples: k=10 and all samples are the authors' choice, and with a bank that is hardly larger than k the
        score does not depend on which samples are near. Drawn uniformly: the leading rows of a store in class order
        would be a few classes only.
    seed : int, default 0
        Of the draw, which depends on nothing but the rows' identities.
    """

    name = "nnguide"
    title = "NNGuide"
    passes = 1
    keeps = (Bank,)

    def __init__(self, k: int | None = None, fraction: float | None = None, seed: int = 0) -> None:
        if (k is not None and k < 1) or not (fraction is None or 0 < fraction <= 1):
            raise ValueError(f"{self.name}: k must be at least 1 and fraction in (0, 1], got {k} and {fraction}")
        self.k, self.fraction, self.seed = k, fraction, seed

    def begin(self, pass_index: int) -> State:
        fraction = self.fraction or FRACTION
        # All of the rows, where the fraction of them has fewer than ten for each neighbour.
        all_below = round(10 * (self.k or MOST_K) / fraction) if self.fraction is None else 0
        return GuideRows(RowSample(self.name, self.k or FEWEST_K, fraction, self.seed, all_below))

    def end_pass(self, pass_index: int, state: State) -> None:
        assert isinstance(state, GuideRows)
        embedding, energy = state.sample.finish()
        self.bank_ = Bank((normalise(embedding) * energy[:, None]).astype(np.float32), "inner")
        self.seen_ = state.sample.seen
        drawn_from_many = 10 * MOST_K <= len(embedding) < self.seen_
        self.k_ = self.k or (MOST_K if drawn_from_many else FEWEST_K)

    def score_finite(self, batch: Rows) -> Floats:
        k = min(self.k_, len(self.bank_))
        guidance = self.bank_.search(normalise(batch.embedding), k).mean(axis=1)
        scores: Floats = batch.energy * guidance
        return scores

    def notes(self) -> list[str]:
        size = len(self.bank_)
        drawn = "all" if size == self.seen_ else f"drawn with seed {self.seed}"
        said = f"{self.name}: bank of {size} training samples, {drawn}, k={self.k_}"
        if size <= self.k_:
            said += (
                f"; k={self.k_} averages over all of them, so the score does not depend on which are near; with few "
                "training samples choose a smaller k and a larger fraction, nnguide:k=10:fraction=1"
            )
        return [said]
