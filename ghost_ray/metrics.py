"""Open-set metrics: OSCR, AUROC, AUPR, FPR95, F@C95 and fairness between classes.

Knowns carry a label and are predicted right or wrong; unknowns belong to no class. A sample is accepted when its
score ≥ θ. Every metric comes from one descending sweep of θ over the distinct scores, in which ties move together
and counts stay integers: the results are the same for any strictly increasing map of the scores, and for any order
of the rows. Scores may be −inf (tied at the bottom); NaN is refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SHARE = 0.95  # of FPR95 and F@C95
FAIR_FPR = 0.10  # τ at which classes are compared
FPR_CURVE = tuple(round(0.01 * i, 2) for i in range(1, 101))  # τ of the V curve
CANDIDATES = 16  # points of a curve weighed for each that is kept
ROUNDING = 1e-9  # 0.95 · 60 is not 57 in float64


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

        Of the points near each place the one is taken that best makes up for the area lost or won so far, so that the
        area under the thinned curve stays that of the whole, to about the square of the spacing: 1e-5 at 500 points.
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


def oscr_curve(scores: OpenSetScores) -> Curve:
    """Correct classification rate over false positive rate, from (0, 0) to (1, closed-set accuracy)."""
    s = scores.sweep
    return Curve(s.unknown / s.unknown[-1], s.correct / s.known[-1], s.threshold)


def roc_curve(scores: OpenSetScores) -> Curve:
    """Accepted knowns over accepted unknowns, from (0, 0) to (1, 1)."""
    s = scores.sweep
    return Curve(s.unknown / s.unknown[-1], s.known / s.known[-1], s.threshold)


def _area(over: Ints, under: Ints, total: int) -> float:
    """Trapezoid area of ``under`` over ``over``, in integers until the last division."""
    twice = int(np.sum(np.diff(over) * (under[1:] + under[:-1])))
    return twice / (2 * int(over[-1]) * total)


def auoscr(scores: OpenSetScores) -> float:
    """Area under the OSCR curve."""
    s = scores.sweep
    return _area(s.unknown, s.correct, int(s.known[-1]))


def auroc(scores: OpenSetScores) -> float:
    """Area under the ROC curve: P(known > unknown) + ½ P(tie)."""
    s = scores.sweep
    return _area(s.unknown, s.known, int(s.known[-1]))


def aupr(scores: OpenSetScores) -> float:
    """Average precision with knowns as positives: Σ (recall step) · precision."""
    s = scores.sweep
    precision = s.known[1:] / (s.known[1:] + s.unknown[1:])
    return float(np.sum(np.diff(s.known) * precision) / s.known[-1])


def aupr_unknown(scores: OpenSetScores) -> float:
    """Average precision with unknowns as positives, rejected from the lowest score up."""
    s = scores.sweep
    known, unknown = (np.diff(counts)[::-1].cumsum() for counts in (s.known, s.unknown))
    steps = np.diff(unknown, prepend=0)
    return float(np.sum(steps * (unknown / (known + unknown))) / unknown[-1])


def _needed(share: float, total: int) -> int:
    """The smallest count that is at least a share of a total."""
    return math.ceil(share * total - ROUNDING)


def _lowest_fpr(accepted: Ints, unknown: Ints, share: float) -> float | None:
    """FPR at the first threshold that accepts a share of the last count; None where that is 0."""
    if accepted[-1] == 0:
        return None
    first = int(np.searchsorted(accepted, _needed(share, int(accepted[-1]))))
    return int(unknown[first]) / int(unknown[-1])


def fpr_at_tpr(scores: OpenSetScores, share: float = SHARE) -> float:
    """Share of unknowns accepted at the first threshold from the top that accepts 95 % of all knowns."""
    s = scores.sweep
    fpr = _lowest_fpr(s.known, s.unknown, share)
    assert fpr is not None, "there is at least one known"
    return fpr


def openood_fpr_at_tpr(scores: OpenSetScores, share: float = SHARE) -> float:
    """OpenOOD's FPR95, unknown = positive: share of knowns rejected once 95 % of unknowns are."""
    s = scores.sweep
    rejected_unknown = (s.unknown[-1] - s.unknown)[::-1]
    rejected_known = (s.known[-1] - s.known)[::-1]
    first = int(np.searchsorted(rejected_unknown, _needed(share, int(s.unknown[-1]))))
    return int(rejected_known[first]) / int(s.known[-1])


def f_at_c(scores: OpenSetScores, share: float = SHARE) -> float | None:
    """Lowest FPR at which CCR ≥ 95 % of closed-set accuracy; None where no known is classified correctly."""
    s = scores.sweep
    return _lowest_fpr(s.correct, s.unknown, share)


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
            threshold = correct[_needed(share, len(correct)) - 1]
            result[index] = (len(unknown) - int(np.searchsorted(unknown, threshold))) / len(unknown)
    return result


def threshold_at_fpr(scores: OpenSetScores, fpr: float) -> float:
    """The lowest score that as a threshold accepts at most a share ``fpr`` of unknowns.

    +inf, which accepts nothing, where the highest score is already shared by too many unknowns.
    """
    if not 0 <= fpr <= 1:
        raise ValueError(f"fpr must lie in [0, 1], got {fpr}")
    s = scores.sweep
    allowed = math.floor(fpr * int(s.unknown[-1]) + ROUNDING)
    return float(s.threshold[int(np.searchsorted(s.unknown, allowed, side="right")) - 1])


def threshold_at_known(known: npt.ArrayLike, share: float) -> float:
    """The highest threshold that accepts at least a share of the knowns."""
    values = np.sort(np.asarray(known, np.float64))[::-1]
    if len(values) == 0 or np.isnan(values).any():
        raise ValueError("a threshold needs at least one known score and no NaN")
    if not 0 < share <= 1:
        raise ValueError(f"the share of knowns kept must lie in (0, 1], got {share}")
    return float(values[_needed(share, len(values)) - 1])


@dataclass(frozen=True)
class ClassRates:
    """CCR of each class under one threshold; V = σ/μ is None where it is not defined, and why is said."""

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
    def undefined(self) -> str | None:
        """Why V is not defined."""
        if len(self.ccr) < 2:
            return "knowns are of one class only"
        return "no known is correct and accepted in any class" if self.mean == 0 else None


def class_rates(scores: OpenSetScores, threshold: float) -> ClassRates:
    """Correct and accepted knowns of each class / its knowns, with one threshold for all classes."""
    classes, index, count = np.unique(scores.label, return_inverse=True, return_counts=True)
    accepted = scores.correct & (scores.known >= threshold)
    return ClassRates(classes.astype(np.int64), np.bincount(index[accepted], minlength=len(classes)) / count)


def cv_curve(scores: OpenSetScores, fprs: Sequence[float] = FPR_CURVE) -> list[tuple[float, float | None]]:
    """V at the threshold of each FPR, as (FPR, V)."""
    return [(fpr, class_rates(scores, threshold_at_fpr(scores, fpr)).cv) for fpr in fprs]


def extreme_classes(scores: OpenSetScores, share: float = 0.10) -> tuple[Ints, Ints]:
    """The classes with the highest and with the lowest closed-set accuracy, a share of them each, at least one."""
    closed = class_rates(scores, -np.inf)
    count = max(1, round(share * len(closed.classes)))
    ascending = np.lexsort((closed.classes, closed.ccr))
    return np.sort(closed.classes[ascending[-count:]]), np.sort(closed.classes[ascending[:count]])


def evaluate(scores: OpenSetScores, fair_fpr: float = FAIR_FPR) -> dict[str, Any]:
    """All scalar metrics under the names of EVAL/metrics.json; what is not defined is None, with its reason.

    Returns
    -------
    dict
        auroc, auoscr, fpr95, openood_fpr95, f_at_c95, ccr_mean, ccr_std, ccr_cv (at FPR ``fair_fpr``); and aupr,
        aupr_unknown, ccr_threshold, auoscr_top_classes, auoscr_bottom_classes, knowns, unknowns,
        undefined (field → reason).
    """
    threshold = threshold_at_fpr(scores, fair_fpr)
    fair = class_rates(scores, threshold)
    top, bottom = extreme_classes(scores)
    result: dict[str, Any] = {
        "auroc": auroc(scores),
        "auoscr": auoscr(scores),
        "fpr95": fpr_at_tpr(scores),
        "openood_fpr95": openood_fpr_at_tpr(scores),
        "f_at_c95": f_at_c(scores),
        "ccr_mean": fair.mean,
        "ccr_std": fair.std,
        "ccr_cv": fair.cv,
        "aupr": aupr(scores),
        "aupr_unknown": aupr_unknown(scores),
        "ccr_threshold": threshold if math.isfinite(threshold) else None,
        "auoscr_top_classes": auoscr(scores.of_classes(top)),
        "auoscr_bottom_classes": auoscr(scores.of_classes(bottom)),
        "knowns": len(scores.known),
        "unknowns": len(scores.unknown),
    }
    reasons = {
        "f_at_c95": "no known is classified correctly",
        "ccr_std": "knowns are of one class only",
        "ccr_cv": fair.undefined,
        "ccr_threshold": "every sample is accepted" if threshold < 0 else "no sample is accepted",
    }
    result["undefined"] = {field: reason for field, reason in reasons.items() if result[field] is None}
    return result
