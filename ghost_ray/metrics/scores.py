"""Scores of one method, sorted once: the sweep of thresholds and the curves that all metrics are read from."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
T = TypeVar("T")

CANDIDATES = 16  # points of a curve weighed for each that is kept


@dataclass(frozen=True)
class OpenSetScores:
    """Scores of one method on knowns and unknowns, sorted once for all metrics."""

    known: Floats  # [N]
    correct: npt.NDArray[np.bool_]  # [N], prediction = label
    label: Ints  # [N]
    unknown: Floats  # [M]

    def __post_init__(self) -> None:
        if not len(self.known) == len(self.correct) == len(self.label):
            raise ValueError(
                f"known has {len(self.known)} scores, correct {len(self.correct)}, label {len(self.label)}"
            )
        for name, scores in (("known", self.known), ("unknown", self.unknown)):
            if len(scores) == 0:
                raise ValueError(f"no {name} samples: open-set metrics need at least one")
            missing = int(np.isnan(scores).sum())
            if missing:
                raise ValueError(f"{missing} of {len(scores)} {name} scores are NaN")

    def of_classes(self, classes: npt.ArrayLike) -> OpenSetScores:
        """The knowns of some classes against all unknowns."""
        mine = np.isin(self.label, classes)
        return OpenSetScores(self.known[mine], self.correct[mine], self.label[mine], self.unknown)

    def take(self, known: npt.NDArray[Any], unknown: npt.NDArray[Any]) -> OpenSetScores:
        """The knowns and unknowns chosen by an index or a mask."""
        return OpenSetScores(self.known[known], self.correct[known], self.label[known], self.unknown[unknown])

    @cached_property
    def sweep(self) -> Sweep:
        """Accepted counts at every distinct threshold."""
        return Sweep.of(self)

    @property
    def accuracy(self) -> float:
        """Closed-set accuracy."""
        return int(self.correct.sum()) / len(self.correct)


def shared(function: Callable[[OpenSetScores], T]) -> Callable[[OpenSetScores], T]:
    """Decorator: values that several metrics share are computed once, as by ``cached_property``."""
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def remembered(scores: OpenSetScores) -> T:
        found = vars(scores)
        if name not in found:
            found[name] = function(scores)
        result: T = found[name]
        return result

    return remembered


@dataclass(frozen=True)
class Sweep:
    """Counts accepted at thresholds from +inf (none) down to the lowest score (all) [T]."""

    threshold: Floats
    known: Ints
    correct: Ints
    unknown: Ints

    @staticmethod
    def of(scores: OpenSetScores) -> Sweep:
        values = np.concatenate([scores.known, scores.unknown]).astype(np.float64, copy=False)
        is_known = np.zeros(len(values), np.int64)
        is_known[: len(scores.known)] = 1
        is_correct = np.zeros(len(values), np.int64)
        is_correct[: len(scores.known)] = scores.correct
        order = np.argsort(-values, kind="stable")
        values = values[order]
        last_of_tie = np.append(values[1:] != values[:-1], True)
        known = np.cumsum(is_known[order])[last_of_tie]
        correct = np.cumsum(is_correct[order])[last_of_tie]
        accepted = np.flatnonzero(last_of_tie) + 1
        return Sweep(
            np.insert(values[last_of_tie], 0, np.inf),
            np.insert(known, 0, 0),
            np.insert(correct, 0, 0),
            np.insert(accepted - known, 0, 0),
        )


@dataclass(frozen=True)
class Curve:
    """Points of a curve over the false positive rate, from the highest threshold down [T]."""

    fpr: Floats
    value: Floats
    threshold: Floats

    def thin(self, points: int) -> Curve:
        """At most ``points`` points, about evenly spaced along the curve, both ends among them.

        Near each position, the point is taken that best compensates the area lost or gained so far. The area under the
        thinned curve then equals that of the whole curve to about the square of the spacing: 1e-5 at 500 points.
        """
        if points < 2:
            raise ValueError(f"a curve needs at least 2 points, got {points}")
        if len(self.fpr) <= points:
            return self
        steps, heights = np.diff(self.fpr), self.value[1:] + self.value[:-1]
        way = np.concatenate([[0.0], np.cumsum(np.abs(steps) + np.abs(np.diff(self.value)))])
        area = np.concatenate([[0.0], np.cumsum(steps * heights) / 2])
        bounds = np.searchsorted(way, (np.arange(points - 1) + 0.5) * way[-1] / (points - 1))
        chosen, drift = [0], 0.0
        for low, high in itertools.pairwise(bounds.tolist()):
            last = chosen[-1]
            start, stop = max(low, last + 1), min(high, len(way) - 1)
            if start >= stop:
                continue
            near = np.unique(np.linspace(start, stop - 1, CANDIDATES).astype(np.int64))
            straight = (self.fpr[near] - self.fpr[last]) * (self.value[near] + self.value[last]) / 2
            error = drift + straight - (area[near] - area[last])
            best = int(np.abs(error).argmin())
            chosen.append(int(near[best]))
            drift = float(error[best])
        chosen.append(len(way) - 1)
        return Curve(self.fpr[chosen], self.value[chosen], self.threshold[chosen])
