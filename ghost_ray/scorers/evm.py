"""Extreme value machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ghost_ray.compiled import read_only
from ghost_ray.rows import Floats, Ints, Rows, Singles, chunks
from ghost_ray.scorers._bank import SPARE, inner_products
from ghost_ray.scorers._common import groups, listed, normalise
from ghost_ray.scorers._sample import RowSample
from ghost_ray.scorers._weibull import fit_weibull, weibull_log_exponent
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Kept, Scorer, State


def cosine_distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Floats:
    """1 − cosine of normalised rows [n, m], within [0, 2]."""
    distance: Floats = np.clip(1.0 - (a @ b.T).astype(np.float64), 0.0, 2.0)
    return distance


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
    reach: Floats  # [m], the distance from which on nothing is included

    def of_each(self, g: Singles) -> Floats:
        """log(−log(1 − Ψ)) of normalised rows under every extreme vector [n, m]."""
        # In float64: a steep Weibull distribution makes much of the last digit, which depends on the rest of a batch.
        distance = cosine_distance(g.astype(np.float64), self.rows.astype(np.float64))
        return weibull_log_exponent(self.reach - distance, self.shape, self.scale)

    def inclusion(self, g: Singles) -> Floats:
        """The largest of it over the extreme vectors [n]."""
        largest: Floats = self.of_each(g).max(axis=1)
        return largest

    def take(self, chosen: list[int]) -> ExtremeVectors:
        """Some of the extreme vectors."""
        return ExtremeVectors(self.rows[chosen], self.shape[chosen], self.scale[chosen], self.reach[chosen])


def order_of_content(rows: Singles) -> npt.NDArray[np.intp]:
    """An order of rows [n, D] that is the same however they are arranged."""
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * rows.itemsize)))
    return np.argsort(whole[:, 0], kind="stable")


def greedy_cover(covers: npt.NDArray[np.bool_]) -> list[int]:
    """Rows of ``covers`` [n, n] that together cover every column, the one that covers most first, then the first."""
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
    """max over the extreme vectors x_i of the predicted class of Ψ_i(f) = 1 − exp(−((r_i − d(f, x_i)) / λ_i)^κ_i).

    For each training sample x_i of a class, m are its margins, half the distances to the nearest samples of other
    classes; r_i = 1 + max(m), and (κ_i, λ_i) is a Weibull fit to r_i − m: what libMR calls FitLow, as in the authors'
    code. Ψ_i is 0 from the distance r_i on. A greedy cover then keeps the x_i such that every sample of the class is
    included by one with Ψ ≥ ``cover``. d is the cosine distance 1 − cos. Rudd et al., *The Extreme Value Machine*,
    IEEE TPAMI 40 (2018), https://arxiv.org/abs/1506.06112.

    The score is log(−log(1 − Ψ)), which orders as Ψ does: Ψ itself would round to 0 or 1 and make ties.

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
    all_classes : bool, default False
        Take the largest Ψ over the extreme vectors of all classes, as the code of the authors' laboratory does,
        instead of those of the predicted class.

    Notes
    -----
    A class without samples or without negatives has no extreme vectors and scores −inf. Where two samples cover
    equally many, their content decides, so the order of the training rows has no effect.
    """

    name = "evm"
    title = "EVM"
    fits_on_logits = False
    passes = 1
    by_class = True
    keeps = (ExtremeVectors,)

    def __init__(
        self,
        tail: int = 100,
        cover: float = 0.7,
        margin: float = 0.5,
        negatives: int = 20_000,
        seed: int = 0,
        all_classes: bool = False,
    ) -> None:
        if tail < 1 or negatives < 1 or not 0 < cover <= 1 or not 0 < margin <= 1:
            raise ValueError(
                f"{self.name}: tail and negatives must be at least 1, cover and margin in (0, 1], "
                f"got {tail}, {negatives}, {cover}, {margin}"
            )
        self.tail, self.cover, self.margin, self.negatives, self.seed = tail, cover, margin, negatives, seed
        self.all_classes = all_classes

    def begin(self, pass_index: int) -> State:
        return Negatives(RowSample(self.name, self.negatives, seed=self.seed))

    def end_pass(self, pass_index: int, state: State) -> None:
        assert isinstance(state, Negatives)
        embedding, label = state.sample.finish()
        rows = normalise(embedding)
        order = order_of_content(rows)
        self.negative_rows_: Singles = rows[order]
        self.negative_labels_: Ints = label[order]
        self.seen_ = state.sample.seen

    def keep(self, batch: Rows) -> Kept:
        return Kept(batch.label, batch.row_id, normalise(batch.embedding))

    def fit_class(self, index: int, rows: Kept) -> ExtremeVectors | None:
        own = rows.values[order_of_content(rows.values)]
        same = self.negative_labels_ == index
        tail = min(self.tail, int(np.sum(~same)))
        if not len(own) or not tail:
            return None
        margins = np.empty((len(own), tail))
        candidates = min(tail + SPARE, int(np.sum(~same)))
        for part in chunks(len(own)):
            distance = cosine_distance(own[part], self.negative_rows_)
            distance[:, same] = np.inf  # cheaper than a copy of all others for each class
            near = np.ascontiguousarray(np.argpartition(distance, candidates - 1, axis=1)[:, :candidates])
            cosine = np.empty(near.shape)
            inner_products(read_only(self.negative_rows_), read_only(own[part]), read_only(near), cosine)
            margins[part] = self.margin * np.sort(np.clip(1.0 - cosine, 0.0, 2.0), axis=1)[:, :tail]
        reach = 1.0 + margins[:, -1]
        every = ExtremeVectors(own, *fit_weibull(reach[:, None] - margins), reach)
        with np.errstate(divide="ignore"):  # nothing is certain: with cover=1 each sample covers itself alone
            covers = np.log(-np.log1p(-self.cover)) <= every.of_each(own).T
        np.fill_diagonal(covers, True)
        return every.take(greedy_cover(covers))

    def end_classes(self, fits: Mapping[int, Any]) -> None:
        self.models_: dict[int, ExtremeVectors] = {k: fit for k, fit in fits.items() if fit is not None}
        # Scoring has no use for the negatives, and a scorer travels to every worker.
        self.negative_rows_ = self.negative_rows_[:0]
        self.negative_labels_ = self.negative_labels_[:0]

    def score_finite(self, batch: Rows) -> Floats:
        scores = np.full(len(batch), -np.inf)
        if self.all_classes:
            g = normalise(batch.embedding)
            for model in self.models_.values():
                scores = np.maximum(scores, model.inclusion(g))
            return scores
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
