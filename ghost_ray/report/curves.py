"""Curves of an evaluation: OSCR, ROC and unfairness; thinned for the page, whole for the figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ghost_ray.report.discover import Result
from ghost_ray.report.document import Axis, Chart, Grid, Series, Tabs
from ghost_ray.report.full_curves import KINDS, Curves, FullCurves
from ghost_ray.report.numbers import number
from ghost_ray.scorers import title_of

# Points the page carries for all curves together, and the most of one.
_ALL_POINTS, _MOST_POINTS = 75_000, 300
_LOWEST_FPR = 1e-3  # if the number of unknowns is unknown
_MOST_SAID = 6


@dataclass(frozen=True)
class Panel:
    """The curves of one unknown set by kind: as curves.parquet has them, thinned for the page, and whole."""

    unknown: str
    prefix: str  # of the charts' ids
    methods: list[str]
    stored: dict[str, Curves]
    thinned: dict[str, Curves]
    whole: FullCurves
    lowest_fpr: float

    def series(self, kind: str) -> list[Series]:
        return _series(self.thinned[kind], self.methods)

    def whole_series(self, kind: str) -> list[Series]:
        """The data of the figures: curves of all scores, or the stored ones if the scores are missing."""
        return _series(self.stored[kind] | self.whole.of_kind(kind), self.methods)

    def said(self, kind: str, fpr: float) -> str:
        """The values of the first few curves at one FPR, in words."""
        present = [method for method in self.methods if method in self.stored[kind]]
        parts = []
        for method in present[:_MOST_SAID]:
            x, y = self.stored[kind][method]
            at = np.flatnonzero(x <= fpr)
            parts.append(f"{title_of(method)} {y[at[-1]] if len(at) else y[0]:.3f}")
        more = f" ({len(present) - _MOST_SAID} more are drawn)" if len(present) > _MOST_SAID else ""
        return ", ".join(parts) + more


def curve_tabs(
    result: Result, methods: list[str], sets: list[str], unknowns: Mapping[str, object], identity: str, room: float
) -> Tabs | None:
    """OSCR (linear, logarithmic; all, top and bottom classes), ROC and V of each unknown set.

    ``unknowns`` is the number of rows of each set, which limits how low an FPR can be resolved.
    """
    table = result.table("curves.parquet", ("method", "unknown", "curve", "x", "y"))
    if table is None or len(table["x"]) == 0:
        return None
    stored = _split(table)
    most = max(40, min(_MOST_POINTS, int(room * _ALL_POINTS) // sum(map(len, stored.values()))))
    sets = sets or list(dict.fromkeys(unknown for unknown, _ in stored))
    methods = methods or list(dict.fromkeys(table["method"]))
    panels = []
    for unknown, slug in zip(sets, _slugs(sets), strict=True):
        found = {kind: stored.get((unknown, kind), {}) for kind in KINDS}
        rows = number(unknowns.get(unknown))
        panel = Panel(
            unknown,
            f"{identity}-{slug}",
            methods,
            found,
            {kind: _thinned(curves, most) for kind, curves in found.items()},
            FullCurves(result, unknown, tuple(methods)),
            1 / rows if rows and rows > 1 else _LOWEST_FPR,
        )
        grids = [*_oscr(panel), *_roc_and_v(panel)]
        if grids:
            panels.append((unknown, grids))
    if not panels:
        return None
    return Tabs(
        id=f"{identity}-curves",
        title="Curves",
        intro="One tab per unknown set. Drag to zoom, double-click to reset, click a name to hide its curve.",
        panels=panels,
    )


def _slugs(names: list[str]) -> list[str]:
    """Names as parts of file names: no name leads out of the folder, and no two names collide."""
    plain = [re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40] for name in names]
    return [slug if slug and plain.count(slug) == 1 else f"{slug}-{i}".strip("-") for i, slug in enumerate(plain)]


def _split(table: dict[str, np.ndarray]) -> dict[tuple[str, str], Curves]:
    found: dict[tuple[str, str], Curves] = {}
    rows: dict[tuple[str, str, str], list[int]] = {}
    for row, key in enumerate(zip(table["unknown"], table["curve"], table["method"], strict=True)):
        rows.setdefault(key, []).append(row)
    for (unknown, curve, method), at in rows.items():
        x, y = (table[name][at].astype(float) for name in ("x", "y"))
        found.setdefault((unknown, curve), {})[method] = (x, y)
    return found


def _thinned(curves: Curves, most: int) -> Curves:
    kept = {}
    for method, (x, y) in curves.items():
        at = np.unique(np.linspace(0, len(x) - 1, min(most, len(x))).astype(int))
        kept[method] = (x[at], y[at])
    return kept


def _series(curves: Curves, methods: list[str]) -> list[Series]:
    return [
        Series(title_of(method), x=curves[method][0], y=curves[method][1], style=methods.index(method))
        for method in methods
        if method in curves
    ]


_OSCR = {
    "oscr": (
        "all classes",
        "Correctly classified and accepted knowns over accepted unknowns. Higher is better; every curve ends at the "
        "closed-set accuracy.",
    ),
    "oscr_top": (
        "top 10 % of classes",
        "Only the knowns of the classes with the highest closed-set accuracy, a tenth of the classes and at least one. "
        "Higher is better; every curve ends at the closed-set accuracy of these.",
    ),
    "oscr_bottom": (
        "bottom 10 % of classes",
        "Only the knowns of the classes with the lowest closed-set accuracy, a tenth of the classes and at least one. "
        "Higher is better; every curve ends at the closed-set accuracy of these.",
    ),
}


def _oscr(panel: Panel) -> list[Grid]:
    charts = []
    for kind, (title, caption) in _OSCR.items():
        if not panel.stored[kind]:
            continue
        linear = Chart(
            id=f"{panel.prefix}-{kind}",
            title=f"OSCR, {title}",
            caption=caption,
            says=f"OSCR of {title} against {panel.unknown}. CCR at FPR 10 %: {panel.said(kind, 0.1)}.",
            x=Axis("false positive rate", percent=True, range=(0, 1)),
            y=Axis("correct classification rate", percent=True),
            series=panel.series(kind),
            whole_series=partial(panel.whole_series, kind),
        )
        logarithmic = replace(
            linear,
            id=f"{panel.prefix}-{kind}-log",
            title=f"OSCR, {title}, logarithmic",
            caption="The same, with low false positive rates spread out: each decade to the left accepts ten times "
            "fewer unknowns.",
            says=f"On a logarithmic axis, OSCR of {title} against {panel.unknown}. "
            f"CCR at FPR 1 %: {panel.said(kind, 0.01)}.",
            x=Axis("false positive rate", scale="log", percent=True, range=(panel.lowest_fpr, 1)),
            series_of=linear.id,
        )
        charts += [linear, logarithmic]
    return [Grid(f"{panel.prefix}-oscr-curves", f"OSCR against {panel.unknown}", charts)] if charts else []


def _roc_and_v(panel: Panel) -> list[Grid]:
    charts = []
    chance = Series("chance", x=[0, 1], y=[0, 1], style="reference")
    if panel.stored["roc"]:
        charts.append(
            Chart(
                id=f"{panel.prefix}-roc",
                title="ROC",
                caption="Accepted knowns, correctly classified or not, over accepted unknowns. The thin "
                "diagonal is chance level.",
                says=f"ROC against {panel.unknown}. Knowns accepted at FPR 10 %: {panel.said('roc', 0.1)}.",
                x=Axis("false positive rate", percent=True, range=(0, 1)),
                y=Axis("knowns accepted", percent=True, range=(0, 1)),
                series=[*panel.series("roc"), chance],
                whole_series=lambda: [*panel.whole_series("roc"), chance],
            )
        )
    if panel.stored["v"]:
        charts.append(
            Chart(
                id=f"{panel.prefix}-v",
                title="Unfairness between classes",
                caption="V, the standard deviation over the mean of the classes’ CCR. Lower is fairer. The far "
                "right shows the unfairness of the classifier itself.",
                says=f"V against {panel.unknown}. At FPR 10 %: {panel.said('v', 0.1)}; "
                f"at FPR 100 %: {panel.said('v', 1.0)}.",
                x=Axis("false positive rate", percent=True, range=(0, 1)),
                y=Axis("V of the CCR over classes"),
                series=panel.series("v"),
                whole_series=partial(panel.whole_series, "v"),
            )
        )
    return [Grid(f"{panel.prefix}-roc-and-fairness", "ROC and fairness", charts)] if charts else []
