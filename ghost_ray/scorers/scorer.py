"""What a scorer is: how it is fitted in a stream of rows, and how it scores them.

A scorer is fitted in `passes` passes over the training rows. In each pass every worker fills its own `State` (``begin``
→ ``update`` …), the states are merged in a fixed order and ``end_pass`` computes the result. A scorer with ``by_class``
then gets, for one class at a time, what ``keep`` returned for each of its rows. Nothing here knows where batches come
from: the jobs drive the same four calls on a cluster that `Scorer.fit` drives in a loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ghost_ray.rows import Floats, Head, Ints, Rows


class State(ABC):
    """What one pass accumulates: plain numpy, mergeable, with the same result for any split of the rows."""

    def update(self, batch: Rows) -> None:
        """Take in a batch; rows without a label or with a value that is not finite are left out."""
        usable = batch.take(batch.finite & (batch.label >= 0))
        if len(usable):
            self.add(usable)

    @abstractmethod
    def add(self, batch: Rows) -> None:
        """Accumulate labelled, finite rows."""

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Take in what another state accumulated."""


@dataclass(frozen=True)
class Kept:
    """What a by-class scorer keeps of the rows of a batch, to be grouped by class."""

    label: Ints  # [n]
    row_id: npt.NDArray[np.uint64]  # [n]
    values: npt.NDArray[Any]  # [n, C]

    def of_class(self, index: int) -> Kept:
        """The rows of one class."""
        mine = self.label == index
        return Kept(self.label[mine], self.row_id[mine], self.values[mine])

    @staticmethod
    def join(parts: Sequence[Kept]) -> Kept:
        """All parts in order of ``row_id``, so that the split has no effect."""
        row_id = np.concatenate([p.row_id for p in parts])
        order = np.argsort(row_id, kind="stable")
        label = np.concatenate([p.label for p in parts])
        return Kept(label[order], row_id[order], np.concatenate([p.values for p in parts])[order])


class Scorer(ABC):
    """An open-set score by name; higher = more known.

    The constructor only stores options; ``bind`` sets the network; fitted attributes end in ``_``.
    """

    name: str  # of a class: the one it is registered under; of an instance: with its options, knn:k=10
    title: str  # as papers write it; without one, the name
    rival: bool = True  # compared with GHOST; false for GHOST and its variants
    needs_head: bool = False  # the logits of changed embeddings are needed
    fits_on_logits: bool = True  # fitting looks at logits, not only at embeddings, labels and predictions
    passes: int = 0  # passes over the training rows
    by_class: bool = False  # afterwards, all rows of a class at once
    keeps: tuple[type, ...] | None = None  # see `kept_classes`

    classes_: int
    dim_: int
    head_: Head | None

    def same_as(self, other: Scorer) -> bool:
        """Whether another scorer, neither of them bound, is of the same method with the same options."""
        mine, theirs = ({**vars(scorer), "name": ""} for scorer in (self, other))
        return type(self) is type(other) and mine == theirs

    def bind(self, classes: int, dim: int, head: Head | None = None) -> Self:
        """Set the network of the rows; raises an error if this method cannot work with it."""
        if self.needs_head and head is None:
            raise ValueError(f"{self.name} needs the network's linear head (weight and bias), and none is known")
        if head is not None and head.weight.shape != (classes, dim):
            raise ValueError(f"head weight is {head.weight.shape}, the rows have K={classes}, D={dim}")
        self.classes_, self.dim_, self.head_ = classes, dim, head
        return self

    @property
    def head(self) -> Head:
        """The linear head, for scorers with ``needs_head``."""
        if self.head_ is None:
            raise ValueError(f"{self.name} was bound without the network's linear head")
        return self.head_

    def begin(self, pass_index: int) -> State:
        """An empty state for a pass."""
        raise ValueError(f"{self.name} has {self.passes} passes, there is no pass {pass_index}")

    def end_pass(self, pass_index: int, state: State) -> None:
        """Conclude a pass from the merged state."""
        raise ValueError(f"{self.name} has {self.passes} passes, there is no pass {pass_index}")

    def keep(self, batch: Rows) -> Kept:
        """What ``fit_class`` needs of each row (``by_class`` only)."""
        raise ValueError(f"{self.name} is not fitted by class")

    def fit_class(self, index: int, rows: Kept) -> Any:
        """The fit of one class from its rows in order of ``row_id``, or None if it has none."""
        raise ValueError(f"{self.name} is not fitted by class")

    def end_classes(self, fits: Mapping[int, Any]) -> None:
        """Conclude from the fits of all classes that had rows."""
        raise ValueError(f"{self.name} is not fitted by class")

    def fit(self, batches: Callable[[], Iterable[Rows]], head: Head | None = None) -> Self:
        """Fit in one process: ``batches()`` is called once per pass."""
        first = next(iter(batches()), None)
        if first is None:
            raise ValueError("no training rows")
        self.bind(first.logits.shape[1], first.embedding.shape[1], head)
        for pass_index in range(self.passes):
            state = self.begin(pass_index)
            for batch in batches():
                state.update(batch)
            self.end_pass(pass_index, state)
        if self.by_class:
            kept = Kept.join([self.keep_usable(batch) for batch in batches()])
            present = np.unique(kept.label).tolist()
            self.end_classes({k: self.fit_class(k, kept.of_class(k)) for k in present})
        return self

    def keep_usable(self, batch: Rows) -> Kept:
        """``keep`` of the labelled, finite rows: what a job calls on each batch."""
        return self.keep(batch.take(batch.finite & (batch.label >= 0)))

    def score(self, batch: Rows) -> Floats:
        """Scores [B], finite or −inf and never NaN.

        A row with a value that is not finite is unknown (−inf); a score beyond float64 becomes its largest number.
        """
        return _of_finite_rows(self.score_finite, batch)

    @abstractmethod
    def score_finite(self, batch: Rows) -> Floats:
        """Scores [B] of rows whose embedding and logits are finite."""

    def notes(self) -> list[str]:
        """What a reader of the results should know about this fit, one sentence each."""
        return []

    def fitted_values(self) -> dict[str, Any]:
        """The fitted attributes by name, without those that ``bind`` sets."""
        return {name: value for name, value in vars(self).items() if name.endswith("_") and name not in _BOUND}

    def kept_classes(self) -> tuple[type, ...] | None:
        """The classes that a fit is made of, besides arrays and plain values; None if fits must not be kept.

        A fit may be kept if the same result version always means the same fit. Nobody knows that of code from
        elsewhere, so a class declares ``keeps`` for itself, and its subclasses do not inherit it.
        """
        kept: tuple[type, ...] | None = vars(type(self)).get("keeps")
        return kept


_BOUND = ("classes_", "dim_", "head_")


class ShardedScorer(Scorer):
    """A scorer whose fitted part may be too large for one process.

    The part is split into shards, each of which gives a partial answer for every row; these merge in any order:
    ``finish(reduce(merge_partial, [score_shard(s, batch) for s in shards]), batch)``. ``score`` does so over
    ``shards_``, which a single process holds complete.
    """

    shards_: list[Any]

    @abstractmethod
    def score_shard(self, shard: Any, batch: Rows) -> Floats:
        """A shard's partial answer [B, P]; undefined for rows that are not finite."""

    @abstractmethod
    def merge_partial(self, a: Floats, b: Floats) -> Floats:
        """Two shards' partial answers as one."""

    def finish(self, partial: Floats, batch: Rows) -> Floats:
        """Scores [B] from the merged partial answer, finite or −inf as those of ``score``."""
        return _of_finite_rows(lambda rows: self.finish_finite(partial[batch.finite], rows), batch)

    @abstractmethod
    def finish_finite(self, partial: Floats, batch: Rows) -> Floats:
        """Scores [B] from the merged partial answer for rows whose embedding and logits are finite."""

    def score_finite(self, batch: Rows) -> Floats:
        partial = self.score_shard(self.shards_[0], batch)
        for shard in self.shards_[1:]:
            partial = self.merge_partial(partial, self.score_shard(shard, batch))
        return self.finish_finite(partial, batch)


def _of_finite_rows(score: Callable[[Rows], Floats], batch: Rows) -> Floats:
    scores = np.full(len(batch), -np.inf)
    usable = batch.finite
    if usable.any():
        with np.errstate(over="ignore", under="ignore"):
            scores[usable] = score(batch.take(usable))
    scores[np.isposinf(scores)] = np.finfo(np.float64).max
    return scores
