"""The tables of a study as sheets of text, before they are set in Markdown or LaTeX.

Layouts are the paper's: Table 1 has networks side by side and three metrics per cell, Table 5 the same with all methods
and one panel per network, Table 6 panels of V and F@C95, Table 4 mean, standard deviation and p-value of each set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ghost_ray import metrics
from ghost_ray.metrics import Metric
from ghost_ray.report.numbers import plural
from ghost_ray.report.study.lookup import GHOST, Cells, beside_paper, network_title, title_of, unknown_title
from ghost_ray.report.study.study_findings import NetworkFindings, Study
from ghost_ray.significance import rows_drawn

# Of the paper's Table 1.
_MAIN_METHODS = ("ghost", "msp", "maxlogit", "nnguide")
NOTHING = "–"


@dataclass(frozen=True)
class Text:
    """A number as shown, with the direction in which it gets better if a cell has several."""

    text: str
    bold: bool = False
    arrow: str = ""


Box = Sequence[Text]


@dataclass(frozen=True)
class Panel:
    """One tabular: ``rows`` are a name (of Table 4 two) and boxes; ``groups`` are headings over so many columns."""

    title: str
    corners: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[tuple[Sequence[str], Sequence[Box]]]
    groups: Sequence[tuple[str, int]] = ()
    legend: Sequence[Metric] = ()  # the metrics in each cell
    block: int = 0  # rows that belong together, with a line after them
    network: str = ""  # the one that it is about, where it is about one


@dataclass(frozen=True)
class Sheet:
    """One table of the paper's kind; ``pairs``: panels are shown in pairs side by side."""

    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
    pairs: bool = False


def sheets(study: Study) -> list[Sheet]:
    """Every table of a study."""
    cells = Cells(study)
    found = [overall(cells), every_method(cells), fairness(cells)]
    found += [significance(cells, metric) for metric in metrics.tested() if study["tests"]]
    if study["pooled"]:
        found.append(pooled(study))
    if study["published"]:
        found.append(beside(study))
    return [*found, audits(study)]


def main_metrics() -> list[Metric]:
    """AUOSCR, AUROC and FPR95."""
    return next(iter(metrics.tables().values()))


def overall(cells: Cells) -> Sheet:
    """Table 1: networks side by side with the paper's four methods, or with the study's first four.

    A number is bold where it is the best of all methods of the study, so a row whose best is not shown has no bold one.
    """
    networks = cells.study["networks"]
    names = [network["name"] for network in networks]
    present = cells.methods(names)
    # With options, as in nnguide:k=10, it is the same method.
    main = [method for name in _MAIN_METHODS for method in present if method.partition(":")[0] == name]
    methods = main if len(main) > 1 else present[: len(_MAIN_METHODS)]
    rows: list[tuple[Sequence[str], Sequence[Box]]] = []
    for unknown in cells.rows(names):
        boxes = [box for name in names for box in _marked(cells, name, unknown, methods, main_metrics())]
        rows.append(([unknown_title(unknown)], boxes))
    panel = Panel(
        title="",
        corners=["Unknowns"],
        columns=[title_of(method) for _ in networks for method in methods],
        rows=rows,
        groups=[(network_title(network), len(methods)) for network in networks],
        legend=main_metrics(),
    )
    legend = ", ".join(metric.title for metric in main_metrics())
    caption = f"{legend} of {plural(len(networks), 'network')}."
    left_out = [title_of(method) for method in present if method not in methods]
    if left_out:
        caption += (
            f" Bold is the best of all {len(present)} methods measured, also of those not shown here: "
            f"{', '.join(left_out)}. Where one of these is the best, nothing is bold."
        )
    return Sheet("overall", "Overall results", caption, [panel])


def every_method(cells: Cells) -> Sheet:
    """Table 5: all methods, one panel per network."""
    panels = []
    for network in cells.study["networks"]:
        methods = cells.methods([network["name"]])
        panels.append(_panel(cells, network, methods, main_metrics(), network_title(network), main_metrics()))
    return Sheet("all-methods", "Results of all methods", "One panel per network.", panels)


def fairness(cells: Cells) -> Sheet:
    """Tables 2, 3 and 6: V and F@C95, two panels per network."""
    shown = [metric for _, found in list(metrics.tables().items())[1:] for metric in found]
    panels = []
    for network in cells.study["networks"]:
        methods = cells.methods([network["name"]])
        panels += [
            _panel(cells, network, methods, [metric], f"{network_title(network)}: {metric.title}", ())
            for metric in sorted(shown, key=lambda metric: metric.field)
        ]
    meanings = ". ".join(f"{metric.title}: {metric.meaning}" for metric in shown)
    return Sheet("fairness", "Fairness and F@C95", f"{meanings}.", panels, pairs=True)


def significance(cells: Cells, metric: Metric) -> Sheet:
    """Table 4: mean and standard deviation over the draws, and the p-value of the paired test against GHOST."""
    study = cells.study
    means = {
        (t["network"], t["unknown"], t["method"]): t["mean"] for t in study["tests"] if t["metric"] == metric.field
    }
    means |= {
        (t["network"], t["unknown"], GHOST): t["reference_mean"] for t in study["tests"] if t["metric"] == metric.field
    }
    p = {
        (t["network"], t["unknown"], t["method"]): t["p_bonferroni"]
        for t in study["tests"]
        if t["metric"] == metric.field
    }
    panels = []
    for network in study["networks"]:
        name = network["name"]
        methods = [m for m in cells.methods([name]) if any(key[0] == name and key[2] == m for key in means)]
        methods.sort(key=lambda method: method != GHOST)
        rows: list[tuple[Sequence[str], Sequence[Box]]] = []
        for unknown in network["unknowns"]:
            places = [(name, unknown, method) for method in methods]
            rows += [
                ([unknown_title(unknown), "Mean"], [[Text(decimal(means.get(place), 3))] for place in places]),
                (["", "STD"], [[Text(decimal(cells.std(*place, metric.field), 3))] for place in places]),
                (["", "P-Value"], [[Text(_p_value(p.get(place)))] for place in places]),
            ]
        panels.append(
            Panel(network_title(network), ["", ""], [title_of(m) for m in methods], rows, block=3, network=name)
        )
    caption = (
        f"{metric.title} over {_draws(study)}. P-values are of two-sided paired t-tests against GHOST, after "
        "Bonferroni's correction for the rivals."
    )
    return Sheet(f"significance-{metric.field}", f"Significance of {metric.title}", caption, panels)


def _draws(study: Study) -> str:
    """How much was drawn: of a set that has no more rows than a draw, less than that."""
    size = study["draw_size"]
    drawn: dict[str, set[int]] = {}
    for network in study["networks"]:
        for name, rows in {"knowns": network["knowns"], **network["unknowns"]}.items():
            drawn.setdefault(name, set()).add(rows_drawn(rows, size))
    fewer = [
        f"{name} {' or '.join(f'{n:,}' for n in sorted(found))}" for name, found in drawn.items() if found != {size}
    ]
    return f"{study['draws']} draws of " + (
        f"{size:,} knowns and unknowns" if not fewer else f"at most {size:,} knowns and unknowns ({', '.join(fewer)})"
    )


def pooled(study: Study) -> Sheet:
    """The tests over all sets of a network and over all networks."""
    titles = {network["name"]: network_title(network) for network in study["networks"]}
    rows: list[tuple[Sequence[str], Sequence[Box]]] = []
    names = {metric.field: metric.title for metric in metrics.tested()}
    for test in study["pooled"]:
        where = "all networks" if test["network"] is None else titles[test["network"]]
        boxes = [
            [Text(title_of(test["method"]))],
            [Text(names[test["metric"]])],
            [Text(test["over"])],
            [Text(f"{test['pairs']:,}")],
            [Text(_signed(test["difference"]))],
            [Text(_p_value(test["p_bonferroni"]), bold=test["significant"])],
        ]
        rows.append(([where], boxes))
    columns = ["Method", "Metric", "Pairs are", "Pairs", "Method - GHOST", "P-Value"]
    caption = (
        "Two-sided paired t-tests against GHOST, after Bonferroni's correction for the rivals; bold below "
        f"{study['alpha']:g}. Pairs are the values of whole sets, or those of the draws."
    )
    return Sheet("pooled", "Pooled tests", caption, [Panel("", ["Networks"], columns, rows)])


def beside(study: Study) -> Sheet:
    """The paper's numbers beside the study's."""
    titles = {network["name"]: network_title(network) for network in study["networks"]}
    names = {metric.field: metric.title for metric in metrics.registered()} | {"rejected_fraction": "audit"}
    rows: list[tuple[Sequence[str], Sequence[Box]]] = []
    for line in study["published"]:
        digits = 4 if line["unknown"] is None else 3
        boxes = [
            [Text(NOTHING if line["unknown"] is None else beside_paper(line["unknown"]))],
            [Text(NOTHING if line["method"] is None else title_of(line["method"]))],
            [Text(names[line["metric"]])],
            [Text(decimal(line["here"], digits))],
            [Text(decimal(line["paper"], digits))],
            [Text(_signed(line["difference"], digits))],
            [Text(line["source"] + (" *" if line["caveats"] else ""))],
        ]
        rows.append(([titles[line["network"]]], boxes))
    columns = ["Unknowns", "Method", "Metric", "Here", "Paper", "Difference", "Source"]
    caption = "The paper's number is the one printed; * has a caveat, which results.json gives."
    return Sheet("published", "Beside the paper", caption, [Panel("", ["Network"], columns, rows)])


def audits(study: Study) -> Sheet:
    """Accuracy and audit of each network."""
    rows: list[tuple[Sequence[str], Sequence[Box]]] = [
        (
            [network_title(network)],
            [
                [Text(f"{network['classes']:,}")],
                [Text(f"{network['dimensions']:,}")],
                [Text(decimal(network["closed_set_accuracy"], 4))],
                [Text(f"{network['audit']['tests']:,}")],
                [Text(f"{100 * network['audit']['rejected_fraction']:.2f}")],
                [Text(f"{network['audit']['median_n']:,.0f}")],
            ],
        )
        for network in study["networks"]
    ]
    columns = ["Classes", "Dimensions", "Accuracy", "Tests", "Rejected, percent", "Median n"]
    caption = (
        "Closed-set accuracy, and the share of the Shapiro-Wilk tests that reject normality after Holm's correction."
    )
    return Sheet("networks", "The networks", caption, [Panel("", ["Network"], columns, rows)])


def _panel(
    cells: Cells,
    network: NetworkFindings,
    methods: Sequence[str],
    shown: Sequence[Metric],
    title: str,
    legend: Sequence[Metric],
) -> Panel:
    rows = [
        ([unknown_title(unknown)], _marked(cells, network["name"], unknown, methods, shown))
        for unknown in cells.rows([network["name"]])
    ]
    columns = [title_of(method) for method in methods]
    return Panel(title, ["Unknowns"], columns, rows, legend=legend, network=network["name"])


def _marked(
    cells: Cells, network: str, unknown: str, methods: Sequence[str], shown: Sequence[Metric]
) -> list[list[Text]]:
    """One box per method; values that look the same as the best of all methods are bold, as in the paper."""
    boxes: list[list[Text]] = [[] for _ in methods]
    for metric in shown:
        values = [cells.value(network, unknown, method, metric.field) for method in methods]
        best = metric.best([cells.value(network, unknown, each, metric.field) for each in cells.methods([network])])
        for box, value in zip(boxes, values, strict=True):
            text = decimal(value)
            bold = best is not None and text == decimal(best)
            box.append(Text(text, bold, metric.arrow if len(shown) > 1 else ""))
    return boxes


def decimal(value: float | None, digits: int = 2) -> str:
    """0.754 → 0.75, as the paper prints it."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def _signed(value: float | None, digits: int = 3) -> str:
    return NOTHING if value is None else f"{value:+.{digits}f}"


def _p_value(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.3e}"
