"""The study's own charts: the audit's rate beside the gain, and accuracy against AUOSCR."""

from __future__ import annotations

from collections.abc import Iterable

from ghost_ray import published
from ghost_ray.report.document import Axis, Chart, Grid, Series
from ghost_ray.report.look import COLOURS
from ghost_ray.report.numbers import decimal, percent, plural, signed
from ghost_ray.report.study.glance import AUOSCR
from ghost_ray.report.study.lookup import GHOST, Cells, network_title, title_of

_MOST_METHODS = len(COLOURS)  # points have no dashes to distinguish them


def study_charts(cells: Cells) -> Grid | None:
    """Both charts; None if there is nothing to draw."""
    charts = [chart for chart in (_audit_and_gain(cells), _accuracy_and_auoscr(cells)) if chart is not None]
    return Grid("study-networks", "Networks side by side", charts) if charts else None


def _gain(means: dict[str, float], rivals: Iterable[str]) -> float | None:
    """GHOST's mean minus that of the rival with the highest."""
    theirs = [means[method] for method in rivals if method in means]
    return means[GHOST] - max(theirs) if GHOST in means and theirs else None


def _means(cells: Cells, network: str) -> dict[str, float]:
    found = {method: cells.mean(network, method, AUOSCR) for method in cells.methods([network])}
    return {method: value for method, value in found.items() if value is not None}


def _paper() -> list[tuple[str, float, float]]:
    """Title, rate of the audit and gain of the paper's networks, from its Table 5."""
    found = []
    for number in published.find(metric="rejected_fraction"):
        cells = published.find(table="table-5", network=number.network, metric=AUOSCR)
        sets = {cell.unknown for cell in cells}
        by_method: dict[str, list[float]] = {}
        for cell in cells:
            by_method.setdefault(cell.method, []).append(cell.value)
        means = {method: sum(values) / len(values) for method, values in by_method.items() if len(values) == len(sets)}
        gain = _gain(means, means.keys() - {GHOST})
        if gain is not None:
            found.append((published.title(number.network), number.value, gain))
    return found


def _audit_and_gain(cells: Cells) -> Chart | None:
    points = []
    for network in cells.study["networks"]:
        gain = _gain(_means(cells, network["name"]), cells.rivals)
        if gain is not None:
            points.append((network_title(network), network["audit"]["rejected_fraction"], gain))
    if not points:
        return None
    paper = _paper()
    series = [
        Series(name, x=[rate], y=[gain], kind="points", style=place, labels=[name])
        for place, (name, rate, gain) in enumerate(points)
    ]
    if paper:
        names, rates, gains = zip(*paper, strict=True)
        series.append(
            Series(
                "the paper’s networks",
                x=rates,
                y=gains,
                kind="points",
                style="muted",
                labels=[f"{name} (paper)" for name in names],
            )
        )
    said = "; ".join(f"{name}: {percent(rate)} rejected, gain {signed(gain)}" for name, rate, gain in points)
    return Chart(
        id="study-audit-gain",
        title="Does the audit predict where GHOST gains?",
        caption="One point per network: the share of normality tests that reject, and GHOST’s mean AUOSCR minus the "
        "best rival’s. The paper’s argument for the audit is that the gain is smaller where more is rejected. Its "
        "networks are drawn from its printed numbers; its audits state neither n, nor the split, nor the family.",
        says=f"{said}.",
        x=Axis("tests that reject normality", percent=True),
        y=Axis("AUOSCR, GHOST − best rival"),
        series=series,
    )


def _accuracy_and_auoscr(cells: Cells) -> Chart | None:
    networks = cells.study["networks"]
    methods = sorted(cells.methods([n["name"] for n in networks]), key=lambda name: name != GHOST)[:_MOST_METHODS]
    series = []
    for place, method in enumerate(methods):
        found = [(n, value) for n in networks if (value := cells.mean(n["name"], method, AUOSCR)) is not None]
        if found:
            found.sort(key=lambda pair: pair[0]["closed_set_accuracy"])
            series.append(
                Series(
                    title_of(method),
                    x=[n["closed_set_accuracy"] for n, _ in found],
                    y=[value for _, value in found],
                    kind="points",
                    style=place,
                    labels=[network_title(n) for n, _ in found],
                )
            )
    if not series:
        return None
    hidden = len(cells.methods([n["name"] for n in networks])) - len(methods)
    left_out = f" The tables show {plural(hidden, 'more method')}." if hidden else ""
    said = [
        f"{network_title(n)}: accuracy {percent(n['closed_set_accuracy'], 1)}, "
        f"{title_of(methods[0])} {decimal(cells.mean(n['name'], methods[0], AUOSCR))}"
        for n in networks
    ]
    return Chart(
        id="study-accuracy",
        title="Does a better classifier reject better?",
        caption="One point per network and method: mean AUOSCR over the network’s unknown sets, which cannot exceed "
        f"its closed-set accuracy. Points of one network are above each other.{left_out}",
        says="; ".join(said) + ".",
        x=Axis("closed-set accuracy", percent=True),
        y=Axis("mean AUOSCR"),
        series=series,
    )
