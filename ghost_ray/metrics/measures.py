"""Functions for areas, rates and thresholds of open-set scores; `standard` turns them into metrics."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ghost_ray.metrics.scores import Curve, Ints, OpenSetScores

SHARE = 0.95  # of FPR95 and F@C95
ROUNDING = 1e-9  # 0.95 · 60 is not 57 in float64


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


def openood_aupr_in(scores: OpenSetScores) -> float:
    """OpenOOD's AUPR_IN: the trapezoid area of precision over recall, knowns as positives.

    A straight line between two points overestimates average precision; see `aupr`.
    """
    s = scores.sweep
    return _area_of_precision(s.known[1:], s.unknown[1:])


def openood_aupr_out(scores: OpenSetScores) -> float:
    """OpenOOD's AUPR_OUT: as AUPR_IN, with unknowns as positives, rejected from the lowest score up."""
    s = scores.sweep
    known, unknown = (np.diff(counts)[::-1].cumsum() for counts in (s.known, s.unknown))
    return _area_of_precision(unknown, known)


def _area_of_precision(positive: Ints, negative: Ints) -> float:
    """Trapezoid area of precision over recall, from recall 0 at precision 1."""
    precision = np.concatenate([[1.0], positive / (positive + negative)])
    recall = np.concatenate([[0.0], positive / positive[-1]])
    return float(np.sum(np.diff(recall) * (precision[1:] + precision[:-1])) / 2)


def needed(share: float, total: int) -> int:
    """The smallest count that is at least a share of a total."""
    return math.ceil(share * total - ROUNDING)


def _lowest_fpr(accepted: Ints, unknown: Ints, share: float) -> float | None:
    """FPR at the first threshold that accepts a share of the last count; None if that is 0."""
    if accepted[-1] == 0:
        return None
    first = int(np.searchsorted(accepted, needed(share, int(accepted[-1]))))
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
    first = int(np.searchsorted(rejected_unknown, needed(share, int(s.unknown[-1]))))
    return int(rejected_known[first]) / int(s.known[-1])


def f_at_c(scores: OpenSetScores, share: float = SHARE) -> float | None:
    """Lowest FPR at which CCR ≥ 95 % of closed-set accuracy; None if no known is classified correctly."""
    s = scores.sweep
    return _lowest_fpr(s.correct, s.unknown, share)


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
    return float(values[needed(share, len(values)) - 1])
