"""The paper's tables: unknown sets against methods, the best of each row and metric in bold.

One `Grid` is made of the results and then set in Markdown, LaTeX or, by the command line, on a terminal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MOST_COLUMNS = 6  # methods side by side; with more, methods go down and unknown sets across
UP, DOWN = "↑", "↓"


@dataclass(frozen=True)
class Metric:
    """A column of metrics.json as a table shows it."""

    field: str
    title: str
    direction: str  # UP: more is better


TABLES: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    (
        "Open-set recognition",
        (Metric("auoscr", "AUOSCR", UP), Metric("auroc", "AUROC", UP), Metric("fpr95", "FPR95", DOWN)),
    ),
    ("FPR at 95 % of closed-set accuracy", (Metric("f_at_c95", "F@C95", DOWN),)),
    ("Unfairness between classes at FPR 10 %", (Metric("ccr_cv", "V", DOWN),)),
)


@dataclass(frozen=True)
class Value:
    """A number as shown, and whether it is the best of its row and metric."""

    text: str
    best: bool
    direction: str


@dataclass(frozen=True)
class Grid:
    """A table: ``cells[row][column]`` holds one value for each metric."""

    title: str
    metrics: tuple[Metric, ...]
    corner: str
    columns: list[str]
    rows: list[str]
    cells: list[list[list[Value]]]
    averages: int  # how many of the last unknown sets are means over a group

    @property
    def legend(self) -> str:
        """``↑ AUOSCR  ↑ AUROC  ↓ FPR95``."""
        return "  ".join(f"{metric.direction} {metric.title}" for metric in self.metrics)


def grids(summary: dict[str, Any]) -> list[Grid]:
    """The tables of an evaluation from what metrics.json holds."""
    methods: list[str] = summary["methods"]
    found = {(r["method"], r["unknown"]): r for r in summary["results"]}
    found |= {(r["method"], _mean_of(r)): r for r in summary["groups"]}
    sets = list(dict.fromkeys([*summary["unknowns"], *(_mean_of(r) for r in summary["groups"])]))
    averages = len(sets) - len(summary["unknowns"])
    made = []
    for title, metrics in TABLES:
        by_set = [_best_marked([found[method, name] for method in methods], metrics) for name in sets]
        names = [display_name(method) for method in methods]
        if len(methods) <= MOST_COLUMNS:
            made.append(Grid(title, metrics, "Unknowns", names, sets, by_set, averages))
        else:
            by_method = [list(cells) for cells in zip(*by_set, strict=True)]
            made.append(Grid(title, metrics, "Method", sets, names, by_method, averages))
    return made


def _mean_of(group: dict[str, Any]) -> str:
    return f"{group['group']} (mean)"


def _best_marked(results: list[dict[str, Any]], metrics: tuple[Metric, ...]) -> list[list[Value]]:
    """One cell a method; values that look the same as the best are all the best, as in the paper."""
    cells: list[list[Value]] = [[] for _ in results]
    for metric in metrics:
        values = [result[metric.field] for result in results]
        texts = ["–" if value is None else f"{value:.3f}" for value in values]
        known = [value for value in values if value is not None]
        best = (max if metric.direction == UP else min)(known, default=None)
        shown = None if best is None or len(known) < 2 else f"{best:.3f}"
        for cell, text in zip(cells, texts, strict=True):
            cell.append(Value(text, text == shown, metric.direction))
    return cells


def display_name(method: str) -> str:
    """A method's name as papers write it."""
    written = {
        "ghost": "GHOST",
        "ghost-gpd": "GHOST-GPD",
        "ghost-full": "GHOST-full",
        "msp": "MSP",
        "maxlogit": "MaxLogit",
        "energy": "Energy",
        "knn": "KNN",
        "nnguide": "NNGuide",
        "react": "ReAct",
        "scale": "SCALE",
        "openmax": "OpenMax",
        "evm": "EVM",
        "vim": "ViM",
        "mds": "MDS",
        "rmds": "RMDS",
    }
    return written.get(method, method.removeprefix("pytorch-ood:"))


def to_markdown(summary: dict[str, Any]) -> str:
    """All tables as one Markdown page."""
    parts = [_headline(summary)]
    for grid in grids(summary):
        lines = [f"### {grid.title}: {grid.legend}", ""]
        lines.append("| " + " | ".join(_escape_markdown(w) for w in (grid.corner, *grid.columns)) + " |")
        lines.append("|" + " --- |" * (len(grid.columns) + 1))
        for name, cells in zip(grid.rows, grid.cells, strict=True):
            shown = [" ".join(f"**{v.text}**" if v.best else v.text for v in cell) for cell in cells]
            lines.append("| " + " | ".join([_escape_markdown(name), *shown]) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def to_latex(summary: dict[str, Any]) -> str:
    """All tables as LaTeX floats; they need the packages booktabs and graphicx."""
    floats = [f"% {_headline(summary)}"]
    arrows = {UP: r"$\uparrow$", DOWN: r"$\downarrow$"}
    for grid in grids(summary):
        legend = " ".join(f"{arrows[metric.direction]} {metric.title}" for metric in grid.metrics)
        heads = [rf"\textbf{{{_escape_latex(word)}}}" for word in (grid.corner, *grid.columns)]
        lines = [
            r"\begin{table*}",
            r"\centering",
            r"\resizebox{\linewidth}{!}{",
            rf"\begin{{tabular}}{{l{'c' * len(grid.columns)}}}",
            r"\toprule",
            " & ".join(heads) + r" \\",
            r"\midrule",
        ]
        for name, cells in zip(grid.rows, grid.cells, strict=True):
            shown = [
                " ".join(f"{arrows[v.direction]} " + (rf"\textbf{{{v.text}}}" if v.best else v.text) for v in cell)
                for cell in cells
            ]
            lines.append(" & ".join([_escape_latex(name), *shown]) + r" \\")
        caption = f"{_escape_latex(grid.title)}: {legend}."
        lines += [r"\bottomrule", r"\end{tabular}}", rf"\caption{{{caption}}}", r"\end{table*}"]
        floats.append("\n".join(lines))
    return "\n\n".join(floats) + "\n"


def _headline(summary: dict[str, Any]) -> str:
    return f"Closed-set accuracy {summary['closed_set_accuracy']:.4f} on {summary['knowns']:,} knowns."


def _escape_markdown(text: str) -> str:
    return text.replace("|", r"\|")


def _escape_latex(text: str) -> str:
    special = {c: f"\\{c}" for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, c) for c in text)
