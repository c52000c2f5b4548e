"""The curves of one network: the paper's teaser figure, ROC and unfairness on logarithmic axes, μ and σ of the CCR.

They are computed from the scores of each evaluation, at false positive rates down to the resolution of the number of
unknowns, so that nothing is lost by thinning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ghost_ray import metrics
from ghost_ray.jobs.evaluate.evaluate_plan import KNOWN
from ghost_ray.metrics import Curve, OpenSetScores
from ghost_ray.report.discover import part_of
from ghost_ray.report.document import Axis, Cell, Chart, Grid, Series, Table, Tabs
from ghost_ray.report.look import COLOURS, Look
from ghost_ray.report.numbers import decimal, percent, text_cell
from ghost_ray.report.pictures import read_scored
from ghost_ray.report.study.lookup import GHOST, Cells, network_title, title_of, unknown_title
from ghost_ray.report.study.study_findings import NetworkFindings

_IN_TEASER = 3  # rivals beside GHOST
_PARTS = {"all": (), "top 10 %": (5.0, 2.0), "bottom 10 %": (1.0, 1.6)}
_RATES = (0.001, 0.01, 0.1, 1.0)
Floats = npt.NDArray[np.float64]


class NetworkScores:
    """The scores of a network's evaluations; a set is read once for each method."""

    def __init__(self, folder: str, findings: NetworkFindings) -> None:
        self._folder = folder
        self._places = {
            (method, unknown): name for name, pairs in findings["evaluations"].items() for method, unknown in pairs
        }
        self._knowns: dict[tuple[str, str], OpenSetScores | None] = {}

    def evaluation(self, method: str, unknown: str) -> str | None:
        """The folder of the evaluation that a cell is from."""
        name = self._places.get((method, unknown))
        return None if name is None else part_of(self._folder, name)

    def of(self, method: str, unknown: str) -> OpenSetScores | None:
        """One method on the knowns and one set; None if its scores are not there."""
        folder = self.evaluation(method, unknown)
        if folder is None:
            return None
        if (folder, method) not in self._knowns:
            known = read_scored(folder, method, KNOWN)
            self._knowns[folder, method] = (
                None
                if known is None
                else OpenSetScores(known.score, known.label == known.pred, known.label, np.array([0.0]))
            )
        scores, other = self._knowns[folder, method], read_scored(folder, method, unknown)
        return None if scores is None or other is None else replace(scores, unknown=other.score)


@dataclass(frozen=True)
class Curves:
    """Everything that is drawn of one method on one set."""

    method: str
    scores: OpenSetScores

    @cached_property
    def rates(self) -> Floats:
        """The false positive rates at which curves are read: evenly spaced, and evenly on a logarithmic axis."""
        lowest = 1 / len(self.scores.unknown)
        return np.unique(np.concatenate([np.linspace(0, 1, 81), np.geomspace(lowest, 1, 60)]))

    def at_rates(self, curve: Curve) -> Floats:
        """The highest value of a curve with at most each false positive rate."""
        last = np.searchsorted(curve.fpr, self.rates + metrics.ROUNDING, side="right") - 1
        return np.asarray(curve.value[last], float)

    def accepted(self, rate: float) -> float:
        """The share of the knowns that are accepted with at most this false positive rate."""
        roc = metrics.roc_curve(self.scores)
        return float(roc.value[np.searchsorted(roc.fpr, rate + metrics.ROUNDING, side="right") - 1])

    @cached_property
    def parts(self) -> dict[str, OpenSetScores]:
        top, bottom = metrics.of_extreme_classes(self.scores)
        return dict(zip(_PARTS, (self.scores, top, bottom), strict=True))

    @cached_property
    def spread(self) -> tuple[Floats, Floats, Floats]:
        """FPR, and mean and standard deviation over the classes of the CCR there."""
        rates = self.rates[self.rates >= 1 / len(self.scores.unknown)][::-1][::2][::-1]
        found = [metrics.class_rates(self.scores, metrics.threshold_at_fpr(self.scores, rate)) for rate in rates]
        std = [np.nan if one.std is None else one.std for one in found]
        return rates, np.array([one.mean for one in found]), np.array(std, float)


def network_blocks(cells: Cells, network: NetworkFindings, scores: NetworkScores, identity: str) -> list[Tabs | Table]:
    """The curves of each set, and μ and σ of the CCR at several false positive rates."""
    areas: list[tuple[str, list[Grid]]] = []
    others: list[tuple[str, list[Grid]]] = []
    rows: list[list[Cell]] = []
    methods = sorted(cells.methods([network["name"]]), key=lambda name: name != GHOST)
    for place, unknown in enumerate(network["unknowns"]):
        loaded = {method: found for method in methods if (found := scores.of(method, unknown)) is not None}
        curves = [Curves(method, found) for method, found in loaded.items()]
        if curves:
            prefix = f"{identity}-{place + 1}"
            oscr, more = _grids(cells, network, unknown, curves, methods, prefix)
            areas.append((unknown_title(unknown), [oscr]))
            others.append((unknown_title(unknown), [more]))
            rows += [_row(unknown, one) for one in curves]
    if not rows:
        return []
    # In separate tabs: the charts of a panel share one legend.
    intro = "One tab per unknown set. Drag to zoom, double-click to reset, click a name to hide its curve."
    tabs = [
        Tabs(f"{identity}-curves", "OSCR", intro, areas),
        Tabs(f"{identity}-more", "ROC and fairness", intro, others),
    ]
    table = Table(
        id=f"{identity}-ccr",
        title="CCR of the classes at several false positive rates",
        caption="μ ± σ over the classes of the share of their knowns that are classified correctly and accepted, under "
        "one threshold for all classes. – means that there are too few unknowns for the rate.",
        columns=["Unknowns", "Method", *(f"FPR {percent(rate, 1 if rate < 0.01 else 0)}" for rate in _RATES)],
        rows=rows,
    )
    return [*tabs, table]


def _row(unknown: str, curves: Curves) -> list[Cell]:
    cells = [text_cell(unknown_title(unknown)), text_cell(title_of(curves.method))]
    for rate in _RATES:
        if rate * len(curves.scores.unknown) < 1:
            cells.append(text_cell("–"))
            continue
        found = metrics.class_rates(curves.scores, metrics.threshold_at_fpr(curves.scores, rate))
        cell = text_cell(f"{decimal(found.mean)} ± {decimal(found.std)}")
        cells.append(replace(cell, value=found.mean))
    return cells


def _grids(
    cells: Cells, network: NetworkFindings, unknown: str, curves: list[Curves], methods: list[str], prefix: str
) -> tuple[Grid, Grid]:
    where = f"{network_title(network)} against {unknown_title(unknown)}"
    lowest = 1 / network["unknowns"][unknown]
    teaser = _teaser(_teased(cells, network, unknown, curves), methods, where, lowest, prefix)
    return (
        Grid(f"{prefix}-oscr", f"OSCR: {where}", teaser),
        Grid(f"{prefix}-more", f"ROC and fairness: {where}", _roc_and_v(curves, methods, where, lowest, prefix)),
    )


def _teased(cells: Cells, network: NetworkFindings, unknown: str, curves: list[Curves]) -> list[Curves]:
    """GHOST and the rivals with the highest AUOSCR."""
    others = [one for one in curves if one.method != GHOST]
    others.sort(key=lambda one: -(cells.value(network["name"], unknown, one.method, "auoscr") or 0.0))
    return [one for one in curves if one.method == GHOST] + others[:_IN_TEASER]


def _teaser(chosen: list[Curves], methods: list[str], where: str, lowest: float, prefix: str) -> list[Chart]:
    series, said = [], []
    for one in chosen:
        colour = COLOURS[methods.index(one.method) % len(COLOURS)]
        areas = []
        for part, dash in _PARTS.items():
            area = metrics.auoscr(one.parts[part])
            areas.append(f"{part} {decimal(area)}")
            curve = one.at_rates(metrics.oscr_curve(one.parts[part]))
            name = f"{title_of(one.method)}, {part}: {decimal(area)}"
            series.append(Series(name, x=one.rates, y=curve, style=Look(colour, dash)))
        said.append(f"{title_of(one.method)} {', '.join(areas)}")
    linear = Chart(
        id=f"{prefix}-teaser",
        title="All, top and bottom classes",
        caption="Correctly classified and accepted knowns over accepted unknowns: of all classes (solid), of the tenth "
        "of the classes with the highest closed-set accuracy (dashed) and with the lowest (dotted); the area under "
        "each in the legend. GHOST and the rivals with the highest AUOSCR.",
        says=f"Areas, {where}: {'; '.join(said)}.",
        x=Axis("false positive rate", percent=True, range=(0, 1)),
        y=Axis("correct classification rate", percent=True),
        series=series,
        height=420,
    )
    logarithmic = replace(
        linear,
        id=f"{prefix}-teaser-log",
        title="The same, logarithmic",
        caption="Down to one accepted unknown, the lowest rate that the number of unknowns resolves.",
        says=f"On a logarithmic axis from {percent(lowest, 3)}, {where}.",
        x=Axis("false positive rate", scale="log", percent=True, range=(lowest, 1)),
        series_of=linear.id,
    )
    return [linear, logarithmic]


def _roc_and_v(curves: list[Curves], methods: list[str], where: str, lowest: float, prefix: str) -> list[Chart]:
    def drawn(one: Curves, x: Floats, y: Floats) -> Series:
        return Series(title_of(one.method), x=x, y=y, style=methods.index(one.method))

    axis = Axis("false positive rate", scale="log", percent=True, range=(lowest, 1))
    roc = [drawn(one, one.rates, one.at_rates(metrics.roc_curve(one.scores))) for one in curves]
    first = curves[0]
    at = f"{percent(lowest, 3)} of the unknowns"
    v, mean = [], []
    for one in curves:
        rates, mu, sigma = one.spread
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(mu > 0, sigma / mu, np.nan)
        v.append(drawn(one, rates, ratio))
        mean.append(drawn(one, rates, mu))
    known = [one for one in v if np.isfinite(np.asarray(one.y)).any()]
    charts = [
        Chart(
            id=f"{prefix}-roc-log",
            title="ROC, logarithmic",
            caption="Accepted knowns, correctly classified or not, over accepted unknowns.",
            says=f"{where}: where {at} are accepted, {title_of(first.method)} accepts "
            f"{percent(first.accepted(lowest), 1)} of the knowns.",
            x=axis,
            y=Axis("knowns accepted", percent=True, range=(0, 1)),
            series=roc,
        )
    ]
    if known:
        charts.append(
            Chart(
                id=f"{prefix}-v-log",
                title="Unfairness between classes, logarithmic",
                caption="V, the standard deviation over the mean of the classes’ CCR; lower is fairer.",
                says=f"{where}: where everything is accepted, V is {decimal(float(np.asarray(v[0].y)[-1]))}.",
                x=axis,
                y=Axis("V of the CCR over classes"),
                series=v,
            )
        )
    charts.append(
        Chart(
            id=f"{prefix}-mean-log",
            title="Mean CCR of the classes",
            caption="The mean over the classes, each counted once, of the share of its knowns that are classified "
            "correctly and accepted.",
            says=f"{where}: {title_of(first.method)} ends at {percent(float(np.asarray(mean[0].y)[-1]), 1)}.",
            x=axis,
            y=Axis("mean CCR", percent=True),
            series=mean,
        )
    )
    return charts
