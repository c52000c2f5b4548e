"""How evenly a method treats the classes: rates of each class under one threshold, and the extreme classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ghost_ray.metrics.measures import SHARE, needed, threshold_at_fpr
from ghost_ray.metrics.scores import Floats, Ints, OpenSetScores, shared

FAIR_FPR = 0.10  # τ at which classes are compared
FPR_CURVE = tuple(round(0.01 * i, 2) for i in range(1, 101))  # τ of the V curve


@dataclass(frozen=True)
class ClassRates:
    """CCR of each class under one threshold; V = σ/μ is None if it is not defined."""

    classes: Ints  # [C], the classes that have knowns
    ccr: Floats  # [C]

    @property
    def mean(self) -> float:
        return float(self.ccr.mean())

    @property
    def std(self) -> float | None:
        """Standard deviation with C − 1."""
        return float(self.ccr.std(ddof=1)) if len(self.ccr) > 1 else None

    @property
    def cv(self) -> float | None:
        """Coefficient of variation V."""
        return self.std / self.mean if self.std is not None and self.mean > 0 else None

    @property
    def undefined(self) -> str:
        """Why V has no value, where it has none."""
        return "knowns are of one class only" if len(self.ccr) < 2 else "no known is correct and accepted in any class"


def class_rates(scores: OpenSetScores, threshold: float) -> ClassRates:
    """Correct and accepted knowns of each class / its knowns, with one threshold for all classes."""
    classes, index, count = np.unique(scores.label, return_inverse=True, return_counts=True)
    accepted = scores.correct & (scores.known >= threshold)
    return ClassRates(classes.astype(np.int64), np.bincount(index[accepted], minlength=len(classes)) / count)


@shared
def fair_threshold(scores: OpenSetScores) -> float:
    """The threshold at which classes are compared: the lowest with an FPR of at most 10 %."""
    return threshold_at_fpr(scores, FAIR_FPR)


@shared
def fair_rates(scores: OpenSetScores) -> ClassRates:
    """CCR of each class at `fair_threshold`."""
    return class_rates(scores, fair_threshold(scores))


def cv_curve(scores: OpenSetScores, fprs: Sequence[float] = FPR_CURVE) -> list[tuple[float, float | None]]:
    """V at the threshold of each FPR, as (FPR, V)."""
    return [(fpr, class_rates(scores, threshold_at_fpr(scores, fpr)).cv) for fpr in fprs]


def extreme_classes(scores: OpenSetScores, share: float = 0.10) -> tuple[Ints, Ints]:
    """The classes with the highest and with the lowest closed-set accuracy, a share of them each, at least one."""
    closed = class_rates(scores, -np.inf)
    count = max(1, round(share * len(closed.classes)))
    ascending = np.lexsort((closed.classes, closed.ccr))
    return np.sort(closed.classes[ascending[-count:]]), np.sort(closed.classes[ascending[:count]])


@shared
def of_extreme_classes(scores: OpenSetScores) -> tuple[OpenSetScores, OpenSetScores]:
    """The knowns of the top and of the bottom 10 % of classes, each against all unknowns."""
    top, bottom = extreme_classes(scores)
    return scores.of_classes(top), scores.of_classes(bottom)


def f_at_c_by_class(scores: OpenSetScores, share: float = SHARE) -> dict[int, float | None]:
    """F@C95 of each class on its own: its knowns against all unknowns."""
    unknown = np.sort(scores.unknown)
    order = np.argsort(scores.label, kind="stable")
    classes, starts = np.unique(scores.label[order], return_index=True)
    result: dict[int, float | None] = {}
    for index, mine in zip(classes.tolist(), np.split(order, starts[1:]), strict=True):
        correct = np.sort(scores.known[mine][scores.correct[mine]])[::-1]
        if len(correct) == 0:
            result[index] = None
        else:
            threshold = correct[needed(share, len(correct)) - 1]
            result[index] = (len(unknown) - int(np.searchsorted(unknown, threshold))) / len(unknown)
    return result
