"""Distance to the k-th nearest training sample."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ghost_ray.rows import Floats, Rows
from ghost_ray.scorers._bank import Bank, merge_topk
from ghost_ray.scorers._common import normalise
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import ShardedScorer, State

MOST_NEIGHBOURS = 10_000  # distances to so many are kept for every row of a batch


class BankRows(State):
    """Normalised training embeddings, which are a shard of the bank."""

    def __init__(self) -> None:
        self.parts: list[npt.NDArray[np.float32]] = []

    def add(self, batch: Rows) -> None:
        self.parts.append(normalise(batch.embedding))

    def merge(self, other: BankRows) -> None:
        self.parts += other.parts


@register
class KNN(ShardedScorer):
    """−(Euclidean distance of g to the k-th nearest g of the training samples), g = f / ‖f‖₂.

    Sun et al., *Out-of-Distribution Detection with Deep Nearest Neighbors*, ICML 2022,
    https://arxiv.org/abs/2204.06507. A zero embedding stays zero and is at distance 1 from all others.

    Parameters
    ----------
    k : int, default 50
        Which of the nearest training samples counts, up to the 10,000th; the farthest if there are fewer than k.

    Notes
    -----
    The bank is all training samples, 6.5 GB on ImageNet with D = 1280. A job makes one shard of each worker's state
    (``shard``) instead of merging the states; the k nearest of the shards merge into the k nearest of all.
    """

    name = "knn"
    title = "KNN"
    fits_on_logits = False
    passes = 1
    keeps = ()

    def __init__(self, k: int = 50) -> None:
        if not 1 <= k <= MOST_NEIGHBOURS:
            raise ValueError(f"{self.name}: k must be 1 to {MOST_NEIGHBOURS:,}, got {k}")
        self.k = k

    def begin(self, pass_index: int) -> State:
        return BankRows()

    def shard(self, state: State) -> Bank:
        """A shard of the bank from the rows one worker has seen."""
        assert isinstance(state, BankRows)
        rows = np.concatenate(state.parts) if state.parts else np.empty((0, self.dim_), np.float32)
        return Bank(rows, "l2")

    def end_pass(self, pass_index: int, state: State) -> None:
        self.shards_ = [self.shard(state)]
        if len(self.shards_[0]) == 0:
            raise ValueError(f"{self.name}: no labelled training rows")

    def score_shard(self, shard: Bank, batch: Rows) -> Floats:
        g = normalise(batch.embedding)
        found = shard.search(g, self.k)
        # From zero all training samples are equally far, and only rounding would decide which are the nearest.
        from_zero = ~g.any(axis=1)
        found[from_zero] = np.rint(found[from_zero])
        return found

    def merge_partial(self, a: Floats, b: Floats) -> Floats:
        return merge_topk(a, b)

    def finish_finite(self, partial: Floats, batch: Rows) -> Floats:
        found = np.isfinite(partial).sum(axis=1)
        scores: Floats = -partial[np.arange(len(partial)), found - 1]
        return scores
