"""Curves of an evaluation: OSCR, ROC, unfairness and the z-scores of knowns and unknowns."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from ghost_ray.evaluate.tables import display_name
from ghost_ray.report.discover import Result
from ghost_ray.report.document import Axis, Chart, Grid, Series, Tabs

KNOWN = "known"
# Points the page carries for all curves together, and the most of one.
_ALL_POINTS, _MOST_POINTS = 75_000, 300
_LOWEST_FPR = 1e-3
_MOST_SAID = 6
Curves = dict[str, tuple[np.ndarray, np.ndarray]]  # method → x, y


def curve_tabs(result: Result, methods: list[str], sets: list[str], identity: str, room: float) -> Tabs | None:
    """OSCR (linear, logarithmic; all, top and bottom classes), ROC and V of each unknown set."""
    table = result.table("curves.parquet", ("method", "unknown", "curve", "x", "y"))
    if table is None or len(table["x"]) == 0:
        return None
    curves = _split(table, room)
    sets = sets or list(dict.fromkeys(unknown for unknown, _ in curves))
    methods = methods or list(dict.fromkeys(table["method"]))
    panels = []
    for unknown, slug in zip(sets, _slugs(sets), strict=True):
        prefix = f"{identity}-{slug}"
        found = {kind: curves.get((unknown, kind), {}) for kind in ("oscr", "oscr_top", "oscr_bottom", "roc", "v")}
        grids = [*_oscr(found, methods, unknown, prefix), *_roc_and_v(found, methods, unknown, prefix)]
        if grids:
            panels.append((unknown, grids))
    if not panels:
        return None
    return Tabs(
        id=f"{identity}-curves",
        title="Curves",
        intro="Each unknown set has its own. Drag to zoom, double-click to go back, click a name to hide its curve.",
        panels=panels,
    )


def _slugs(names: list[str]) -> list[str]:
    """Names as parts of file names: whatever a set is called, nothing leads out of the folder, and no two are one."""
    plain = [re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40] for name in names]
    return [slug if slug and plain.count(slug) == 1 else f"{slug}-{i}".strip("-") for i, slug in enumerate(plain)]


def _split(table: dict[str, list[str] | np.ndarray], room: float) -> dict[tuple[str, str], Curves]:
    found: dict[tuple[str, str], Curves] = {}
    rows: dict[tuple[str, str, str], list[int]] = {}
    for row, key in enumerate(zip(table["unknown"], table["curve"], table["method"], strict=True)):
        rows.setdefault(key, []).append(row)  # type: ignore[arg-type]
    most = max(40, min(_MOST_POINTS, int(room * _ALL_POINTS) // len(rows)))
    for (unknown, curve, method), at in rows.items():
        x, y = (np.asarray(table[name])[at].astype(float) for name in ("x", "y"))
        if len(x) > most:
            keep = np.unique(np.linspace(0, len(x) - 1, most).astype(int))
            x, y = x[keep], y[keep]
        found.setdefault((unknown, curve), {})[method] = (x, y)
    return found


def _series(curves: Curves, methods: list[str]) -> list[Series]:
    return [
        Series(display_name(method), x=curves[method][0], y=curves[method][1], style=methods.index(method))
        for method in methods
        if method in curves
    ]


def _said(curves: Curves, methods: list[str], fpr: float) -> str:
    """The values of the first few curves at one FPR, in words."""
    parts = []
    for method in methods[:_MOST_SAID]:
        if method in curves:
            x, y = curves[method]
            at = np.flatnonzero(x <= fpr)
            parts.append(f"{display_name(method)} {y[at[-1]] if len(at) else y[0]:.3f}")
    return ", ".join(parts)


def _oscr(found: dict[str, Curves], methods: list[str], unknown: str, prefix: str) -> list[Grid]:
    charts = []
    kinds = (
        ("oscr", "all classes", "Correctly classified and accepted knowns over accepted unknowns."),
        ("oscr_top", "top 10 % of classes", "The classes with the highest closed-set accuracy: the easy ones."),
        ("oscr_bottom", "bottom 10 % of classes", "The classes with the lowest closed-set accuracy: the hard ones."),
    )
    for kind, title, caption in kinds:
        curves = found[kind]
        if not curves:
            continue
        linear = Chart(
            id=f"{prefix}-{kind}",
            title=f"OSCR, {title}",
            caption=f"{caption} Higher is better; every curve ends at the closed-set accuracy.",
            says=f"OSCR of {title} against {unknown}. CCR at FPR 10 %: {_said(curves, methods, 0.1)}.",
            x=Axis("false positive rate", percent=True, range=(0, 1)),
            y=Axis("correct classification rate", percent=True),
            series=_series(curves, methods),
        )
        logarithmic = replace(
            linear,
            id=f"{prefix}-{kind}-log",
            title=f"OSCR, {title}, logarithmic",
            caption="The same where false alarms are dear: each step to the left accepts ten times fewer unknowns.",
            says=f"On a logarithmic axis, OSCR of {title} against {unknown}. "
            f"CCR at FPR 1 %: {_said(curves, methods, 0.01)}.",
            x=Axis("false positive rate", scale="log", percent=True, range=(_LOWEST_FPR, 1)),
            series_of=linear.id,
        )
        charts += [linear, logarithmic]
    return [Grid(f"{prefix}-oscr-curves", f"OSCR against {unknown}", charts)] if charts else []


def _roc_and_v(found: dict[str, Curves], methods: list[str], unknown: str, prefix: str) -> list[Grid]:
    charts = []
    if found["roc"]:
        charts.append(
            Chart(
                id=f"{prefix}-roc",
                title="ROC",
                caption="Accepted knowns, right or wrong, over accepted unknowns. On the thin diagonal a score says "
                "nothing.",
                says=f"ROC against {unknown}. Knowns accepted at FPR 10 %: {_said(found['roc'], methods, 0.1)}.",
                x=Axis("false positive rate", percent=True, range=(0, 1)),
                y=Axis("knowns accepted", percent=True, range=(0, 1)),
                series=[*_series(found["roc"], methods), Series("chance", x=[0, 1], y=[0, 1], style="reference")],
            )
        )
    if found["v"]:
        charts.append(
            Chart(
                id=f"{prefix}-v",
                title="Unfairness between classes",
                caption="V, the standard deviation over the mean of the classes’ CCR. Lower is fairer; at the far "
                "right the classifier’s own unfairness is left.",
                says=f"V against {unknown}. At FPR 10 %: {_said(found['v'], methods, 0.1)}; "
                f"at FPR 100 %: {_said(found['v'], methods, 1.0)}.",
                x=Axis("false positive rate", percent=True, range=(0, 1)),
                y=Axis("V of the CCR over classes"),
                series=_series(found["v"], methods),
            )
        )
    return [Grid(f"{prefix}-roc-and-fairness", "ROC and fairness", charts)] if charts else []


def z_score_chart(result: Result, identity: str) -> Grid | None:
    """How far knowns and each unknown set lie from the Gaussian of the class they are taken for."""
    table = result.table("zscores.parquet", ("set", "left", "right", "count"))
    if table is None or len(table["count"]) == 0:
        return None
    names = sorted(dict.fromkeys(table["set"]), key=lambda name: name != KNOWN)
    series, said = [], []
    reach = _reach(table["left"], table["right"], table["count"])
    for position, name in enumerate(names):
        at = np.flatnonzero([s == name for s in table["set"]])
        at = at[np.argsort(table["left"][at], kind="stable")]
        left, right, count = (table[column][at].astype(float) for column in ("left", "right", "count"))
        share = count / max(count.sum(), 1)
        edges = np.append(left, right[-1])
        shown = np.where(share > 0, share, np.nan)
        series.append(Series(name, x=edges, y=np.append(shown, shown[-1]), kind="steps", style=position))
        middle = int(np.searchsorted(np.cumsum(share), 0.5))
        said.append(f"{name}: half lie below {right[min(middle, len(right) - 1)]:.4g}")
    chart = Chart(
        id=f"{identity}-z",
        title="Distance from the predicted class’s Gaussian",
        caption="s, the sum of |z| over the dimensions, of every test sample; shares on a logarithmic axis, so that "
        "the rare failures are seen. The less known and unknown overlap, the better GHOST can tell them apart.",
        says="Distribution of s. " + "; ".join(said) + ".",
        x=Axis("s = Σ |z|", range=reach),
        y=Axis("share of the set", scale="log", percent=True),
        series=series,
        height=380,
    )
    return Grid(f"{identity}-z-scores", "How far from home", [chart])


def _reach(left: np.ndarray, right: np.ndarray, count: np.ndarray) -> tuple[float, float]:
    """The range of s to show: where samples lie, but a last bin much wider than the others, of few far ones, is cut."""
    width = right - left
    shown = (width <= 3 * np.median(width)) & (count > 0)
    if not shown.any():
        return float(left.min()), float(right.max())
    near, far = float(left[shown].min()), float(right[shown].max())
    return near, far + 0.02 * (far - near)
