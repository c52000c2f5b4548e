"""OpenMax."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ghost_ray.rows import Floats, Ints, Rows, chunks, logsumexp
from ghost_ray.scorers._common import listed, writable
from ghost_ray.scorers._weibull import fit_weibull, weibull_exponent
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Scorer, State


class LogitMeans(State):
    """Sum of the logits of each class's correctly classified rows."""

    def __init__(self, classes: int) -> None:
        self.count: Ints = np.zeros(classes, np.int64)
        self.total: Floats = np.zeros((classes, classes))

    def add(self, batch: Rows) -> None:
        rows = batch.take(batch.correct)
        classes, index, count = np.unique(rows.label, return_inverse=True, return_counts=True)
        if len(classes) == 0:
            return
        order = np.argsort(index, kind="stable")
        starts = np.concatenate([[0], np.cumsum(count)[:-1]])
        self.count, self.total = writable(self.count), writable(self.total)
        self.count[classes] += count
        self.total[classes] += np.add.reduceat(rows.logits[order].astype(np.float64), starts, axis=0)

    def merge(self, other: LogitMeans) -> None:
        self.count = self.count + other.count
        self.total = self.total + other.total


class Tails(State):
    """The largest distances of each class's correctly classified rows from its mean, ascending [K, T]."""

    def __init__(self, means: Floats, size: int) -> None:
        self.means = means
        self.distance: Floats = np.full((len(means), size), -np.inf)

    def add(self, batch: Rows) -> None:
        rows = batch.take(batch.correct)
        distance = np.empty(len(rows))
        for part in chunks(len(rows)):
            distance[part] = np.linalg.norm(rows.logits[part] - self.means[rows.label[part]], axis=1)
        order = np.lexsort((-distance, rows.label))
        label, distance = rows.label[order], distance[order]
        _, starts, count = np.unique(label, return_index=True, return_counts=True)
        place = np.arange(len(label)) - np.repeat(starts, count)
        size = self.distance.shape[1]
        far = np.full(self.distance.shape, -np.inf)
        far[label[place < size], place[place < size]] = distance[place < size]
        self._keep_largest(far)

    def merge(self, other: Tails) -> None:
        self._keep_largest(other.distance)

    def _keep_largest(self, distance: Floats) -> None:
        size = self.distance.shape[1]
        self.distance = np.sort(np.concatenate([self.distance, distance], axis=1), axis=1)[:, -size:]


@register
class OpenMax(Scorer):
    """−P(unknown) under softmax over K + 1 logits.

    For the α classes with the largest logits, of rank i = 0, 1, …, F_k(‖ℓ − m_k‖) · (α − i)/α of ℓ_k is taken away;
    what is taken from all of them is the logit of "unknown". m_k is the mean of the logits of the *correctly
    classified* training samples of class k, F_k a Weibull distribution fitted to the largest distances from it.
    Bendale and Boult, *Towards Open Set Deep Networks*, CVPR 2016, https://arxiv.org/abs/1511.06233.

    Parameters
    ----------
    tail : int, default 20
        Distances to which the Weibull distribution is fitted.
    alpha : int, default 3
        Classes whose logits are reduced, at most K.
    shift : float, default 10000
        Where the smallest distance of a tail is moved before the fit. libMR has moved it to 1 since 2017; the libMR
        of the authors' code, to 10,000.

    Notes
    -----
    For a class without correctly classified samples, F_k = 1 and it is named in ``missing_``.
    """

    name = "openmax"
    title = "OpenMax"
    passes = 2
    keeps = ()

    missing_: npt.NDArray[np.intp]

    def __init__(self, tail: int = 20, alpha: int = 3, shift: float = 10_000.0) -> None:
        if tail < 1 or alpha < 1:
            raise ValueError(f"{self.name}: tail and alpha must be at least 1, got {tail} and {alpha}")
        if not 0 < shift < np.inf:
            raise ValueError(f"{self.name}: shift must be above 0, got {shift}")
        self.tail, self.alpha, self.shift = tail, alpha, shift

    def begin(self, pass_index: int) -> State:
        return LogitMeans(self.classes_) if pass_index == 0 else Tails(self.means_, self.tail)

    def end_pass(self, pass_index: int, state: State) -> None:
        if isinstance(state, LogitMeans):
            self.means_: Floats = state.total / np.maximum(state.count, 1)[:, None]
            self.missing_ = np.flatnonzero(state.count == 0)
        elif isinstance(state, Tails):
            self._fit_tails(state.distance)

    def _fit_tails(self, distance: Floats) -> None:
        self.shape_ = np.ones(self.classes_)
        self.scale_ = np.ones(self.classes_)
        self.smallest_ = np.zeros(self.classes_)
        size = np.isfinite(distance).sum(axis=1)
        for n in np.unique(size[size > 0]):
            here = np.flatnonzero(size == n)
            tails = distance[here, -n:]
            self.smallest_[here] = tails[:, 0]
            self.shape_[here], self.scale_[here] = fit_weibull(tails - tails[:, :1] + self.shift)

    def outlier_probability(self, batch: Rows, classes: Ints) -> Floats:
        """F_k of each row's distance from the mean of class k, one per row [B]."""
        distance = np.linalg.norm(batch.logits - self.means_[classes], axis=1)
        moved = distance - self.smallest_[classes] + self.shift
        probability: Floats = -np.expm1(-weibull_exponent(moved, self.shape_[classes], self.scale_[classes]))
        probability[np.isin(classes, self.missing_)] = 1.0
        return probability

    def score_finite(self, batch: Rows) -> Floats:
        alpha = min(self.alpha, batch.logits.shape[1])
        scores = np.empty(len(batch))
        for part in chunks(len(batch)):
            rows = batch.take(np.arange(part.start, part.stop))
            line = np.arange(len(rows))
            top = np.argsort(-rows.logits, axis=1, kind="stable")[:, :alpha]
            revised = np.zeros((len(rows), rows.logits.shape[1] + 1))
            revised[:, 1:] = rows.logits
            for rank in range(alpha):
                logit = rows.logits[line, top[:, rank]].astype(np.float64)
                removed = logit * self.outlier_probability(rows, top[:, rank]) * (alpha - rank) / alpha
                revised[line, 1 + top[:, rank]] -= removed
                revised[:, 0] += removed
            scores[part] = -np.exp(revised[:, 0] - logsumexp(revised))
        return scores

    def notes(self) -> list[str]:
        if not len(self.missing_):
            return []
        return [f"{self.name}: {listed(self.missing_)} without correct training samples, taken as unknown"]
