"""Extreme value machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ghost_ray.rows import Floats, Ints, Rows, Singles, chunks
from ghost_ray.scorers._common import groups, listed, normalise
from ghost_ray.scorers._sample import RowSample
from ghost_ray.scorers._weibull import fit_weibull, weibull_exponent
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Kept, Scorer, State

NEAREST = 1e-7  # what float32 resolves of a cosine; a negative on top of a sample is this far


def cosine_distance(a: Singles, b: Singles) -> Floats:
    """1 − cosine of normalised rows [n, m], within [0, 2]."""
    return np.clip(1.0 - (a @ b.T).astype(np.float64), 0.0, 2.0)


class Negatives(State):
    """A random sample of normalised training embeddings with their labels."""

    def __init__(self, sample: RowSample) -> None:
        self.sample = sample

    def add(self, batch: Rows) -> None:
        self.sample.update(batch.row_id, batch.embedding, batch.label)

    def merge(self, other: Negatives) -> None:
        self.sample.merge(other.sample)


@dataclass(frozen=True)
class ExtremeVectors:
    """The samples that represent a class, with the Weibull distribution of their margins."""

    rows: Singles  # [m, D], normalised
    shape: Floats  # [m]
    scale: Floats  # [m]

    def inclusion(self, g: Singles) -> Floats:
        """The largest inclusion probability over the extreme vectors, of normalised rows [n]."""
        exponent = weibull_exponent(cosine_distance(g, self.rows), self.shape, self.scale)
        probability: Floats = np.exp(-exponent.min(axis=1))
        return probability


def greedy_cover(covers: npt.NDArray[np.bool_]) -> list[int]:
    """Rows of ``covers`` [n, n] that together cover every column, the one that covers most first."""
    uncovered = np.ones(covers.shape[1], bool)
    gain = covers.sum(axis=1)
    chosen: list[int] = []
    while uncovered.any():
        best = int(gain.argmax())
        new = covers[best] & uncovered
        chosen.append(best)
        gain = gain - covers[:, new].sum(axis=1)
        uncovered &= ~new
    return chosen


@register
class EVM(Scorer):
    """max over the extreme vectors x_i of the predicted class of Ψ_i(f) = exp(−(d(f, x_i) / λ_i)^κ_i).

    For each training sample x_i of a class, (κ_i, λ_i) are a Weibull fit to the margins, half the distances to the
    nearest samples of other classes. A greedy cover then keeps the x_i such that every sample of the class is included
    by one with Ψ ≥ ``cover``. d is the cosine distance 1 − cos. Rudd et al., *The Extreme Value Machine*, IEEE TPAMI
    40 (2018), https://arxiv.org/abs/1506.06112.

    Parameters
    ----------
    tail : int, default 100
        Nearest negatives to which the Weibull distribution is fitted.
    cover : float, default 0.7
        Inclusion probability from which a sample represents another.
    margin : float, default 0.5
        Share of the distance to a negative that is the sample's own.
    negatives : int, default 20000
        Negatives are taken from a uniform random sample of this many training samples (all, if there are fewer); the
        notes say so.
    seed : int, default 0
        Of that sample, which depends on nothing but the rows' identities.

    Notes
    -----
    A class without samples or without negatives has no extreme vectors and scores −inf.
    """

    name = "evm"
    title = "EVM"
    fits_on_logits = False
    passes = 1
    by_class = True
    keeps = (ExtremeVectors,)

    def __init__(
        self, tail: int = 100, cover: float = 0.7, margin: float = 0.5, negatives: int = 20_000, seed: int = 0
    ) -> None:
        if tail < 1 or negatives < 1 or not 0 < cover <= 1 or not 0 < margin <= 1:
            raise ValueError(
                f"{self.name}: tail and negatives must be at least 1, cover and margin in (0, 1], "
                f"got {tail}, {negatives}, {cover}, {margin}"
            )
        self.tail, self.cover, self.margin, self.negatives, self.seed = tail, cover, margin, negatives, seed

    def begin(self, pass_index: int) -> State:
        return Negatives(RowSample(self.name, self.negatives, seed=self.seed))

    def end_pass(self, pass_index: int, state: State) -> None:
        assert isinstance(state, Negatives)
        embedding, label = state.sample.finish()
        self.negative_rows_: Singles = normalise(embedding)
        self.negative_labels_: Ints = label
        self.seen_ = state.sample.seen

    def keep(self, batch: Rows) -> Kept:
        return Kept(batch.label, batch.row_id, normalise(batch.embedding))

    def fit_class(self, index: int, rows: Kept) -> ExtremeVectors | None:
        own = rows.values
        same = self.negative_labels_ == index
        tail = min(self.tail, int(np.sum(~same)))
        if not len(own) or not tail:
            return None
        margins = np.empty((len(own), tail))
        for part in chunks(len(own)):
            distance = cosine_distance(own[part], self.negative_rows_)
            distance[:, same] = np.inf  # cheaper than a copy of all others for each class
            margins[part] = self.margin * np.sort(np.partition(distance, tail - 1, axis=1)[:, :tail], axis=1)
        shape, scale = fit_weibull(np.maximum(margins, NEAREST))
        exponent = weibull_exponent(cosine_distance(own, own), shape[:, None], scale[:, None])
        covers = exponent <= -np.log(self.cover)
        np.fill_diagonal(covers, True)
        chosen = greedy_cover(covers)
        return ExtremeVectors(own[chosen], shape[chosen], scale[chosen])

    def end_classes(self, fits: Mapping[int, Any]) -> None:
        self.models_: dict[int, ExtremeVectors] = {k: fit for k, fit in fits.items() if fit is not None}
        # Scoring has no use for the negatives, and a scorer travels to every worker.
        self.negative_rows_ = self.negative_rows_[:0]
        self.negative_labels_ = self.negative_labels_[:0]

    def score_finite(self, batch: Rows) -> Floats:
        scores = np.full(len(batch), -np.inf)
        for k, rows in groups(batch.pred):
            if k in self.models_:
                scores[rows] = self.models_[k].inclusion(normalise(batch.embedding[rows]))
        return scores

    def notes(self) -> list[str]:
        said = []
        if self.seen_ > self.negatives:
            said.append(f"{self.name}: negatives from a random {self.negatives} of {self.seen_} training samples")
        missing = [k for k in range(self.classes_) if k not in self.models_]
        if missing:
            said.append(f"{self.name}: {listed(missing)} without extreme vectors, scored −inf")
        return said
