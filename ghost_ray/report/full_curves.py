"""Curves of every score of an evaluation, for figures: curves.parquet and the page hold thinned ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ghost_ray.files import join
from ghost_ray.jobs.evaluate.evaluate_plan import KNOWN
from ghost_ray.jobs.evaluate.scoring import score_file
from ghost_ray.metrics import Curve, OpenSetScores, of_extreme_classes, oscr_curve, roc_curve
from ghost_ray.report.discover import Result

Curves = dict[str, tuple[np.ndarray, np.ndarray]]  # method → x, y
_FROM_SCORES: dict[str, Callable[[OpenSetScores], Curve]] = {
    "oscr": oscr_curve,
    "oscr_top": lambda scores: oscr_curve(of_extreme_classes(scores)[0]),
    "oscr_bottom": lambda scores: oscr_curve(of_extreme_classes(scores)[1]),
    "roc": roc_curve,
}
KINDS = (*_FROM_SCORES, "v")
# Finer than a figure is printed: 0.0003 of an axis, and of a decade.
_STEPS = 3000


@dataclass(frozen=True)
class FullCurves:
    """The curves of all methods against one unknown set, read when they are first drawn."""

    result: Result
    unknown: str
    methods: tuple[str, ...]

    def of_kind(self, kind: str) -> Curves:
        """Curves of one of KINDS by method; without those whose scores are not there."""
        return self._curves.get(kind, {})

    @cached_property
    def _curves(self) -> dict[str, Curves]:
        found: dict[str, Curves] = {kind: {} for kind in _FROM_SCORES}
        for method in self.methods:
            scores = self._scores(method)
            if scores is not None:
                for kind, curve in _FROM_SCORES.items():
                    found[kind][method] = _as_drawn(curve(scores))
        return found

    def _scores(self, method: str) -> OpenSetScores | None:
        known, unknown = (
            self.result.table(join("scores", score_file(method, name)), ("label", "pred", "score"))
            for name in (KNOWN, self.unknown)
        )
        if known is None or unknown is None or not len(known["score"]) or not len(unknown["score"]):
            return None
        return OpenSetScores(known["score"], known["label"] == known["pred"], known["label"], unknown["score"])


def _as_drawn(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """The points that can be distinguished in print, on a linear axis and on a logarithmic one."""
    x, y = curve.fpr, curve.value
    lowest = x[x > 0].min(initial=1.0)
    kept = [np.array([0, len(x) - 1])]
    for place in (x, y, np.log10(np.maximum(x, lowest / 10))):
        cell = np.floor(place * _STEPS).astype(np.int64)
        new = np.flatnonzero(np.diff(cell))
        kept += [new, new + 1]
    at = np.unique(np.concatenate(kept))
    return x[at], y[at]
