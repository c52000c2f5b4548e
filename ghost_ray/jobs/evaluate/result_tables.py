"""The paper's tables: unknown sets against methods, the best of each row and metric in bold.

One `Grid` is made of the results and then set in Markdown, LaTeX or, by the command line, on a terminal.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from ghost_ray import metrics
from ghost_ray.jobs.evaluate.findings import Evaluation, GroupResult, PairResult
from ghost_ray.metrics import Metric
from ghost_ray.scorers import title_of

MOST_COLUMNS = 6  # methods side by side; with more, methods go down and unknown sets across
ARROWS = {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "": ""}


@dataclass(frozen=True)
class Value:
    """A number as shown, and whether it is the best of its row and metric."""

    text: str
    best: bool
    arrow: str


@dataclass(frozen=True)
class Grid:
    """A table: ``cells[row][column]`` holds one value for each metric."""

    title: str
    metrics: list[Metric]
    corner: str
    columns: list[str]
    rows: list[str]
    cells: list[list[list[Value]]]
    averages: int  # how many of the last unknown sets are means over a group

    @property
    def legend(self) -> str:
        """``↑ AUOSCR  ↑ AUROC  ↓ FPR95``."""
        return "  ".join(metric.heading for metric in self.metrics)


def grids(summary: Evaluation) -> list[Grid]:
    """The tables of an evaluation from what metrics.json holds."""
    methods: list[str] = summary["methods"]
    found: dict[tuple[str, str], PairResult | GroupResult] = {
        (r["method"], r["unknown"]): r for r in summary["results"]
    }
    found |= {(r["method"], _mean_of(r)): r for r in summary["groups"]}
    sets = list(dict.fromkeys([*summary["unknowns"], *(_mean_of(r) for r in summary["groups"])]))
    averages = len(sets) - len(summary["unknowns"])
    made = []
    for title, shown in metrics.tables().items():
        by_set = [_best_marked([found[method, name] for method in methods], shown) for name in sets]
        names = [title_of(method) for method in methods]
        if len(methods) <= MOST_COLUMNS:
            made.append(Grid(title, shown, "Unknowns", names, sets, by_set, averages))
        else:
            by_method = [list(cells) for cells in zip(*by_set, strict=True)]
            made.append(Grid(title, shown, "Method", sets, names, by_method, averages))
    return made


def _mean_of(group: GroupResult) -> str:
    return f"{group['group']} (mean)"


def _best_marked(results: list[PairResult | GroupResult], shown: list[Metric]) -> list[list[Value]]:
    """One cell per method; values that look the same as the best are all the best, as in the paper."""
    cells: list[list[Value]] = [[] for _ in results]
    for metric in shown:
        values = [metric.read(result) for result in results]
        best = metric.best(values)
        for cell, value in zip(cells, values, strict=True):
            text = _three_digits(value)
            cell.append(Value(text, best is not None and text == _three_digits(best), metric.arrow))
    return cells


def _three_digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def to_markdown(summary: Evaluation) -> str:
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


def to_html(summary: Evaluation) -> str:
    """All tables as HTML, for a notebook."""
    parts = [f"<p>{escape(_headline(summary))}</p>"]
    for grid in grids(summary):
        heads = "".join(f"<th>{escape(word)}</th>" for word in (grid.corner, *grid.columns))
        lines = [f"<tr>{heads}</tr>"]
        for name, cells in zip(grid.rows, grid.cells, strict=True):
            shown = ["<br>".join(f"<b>{v.text}</b>" if v.best else v.text for v in cell) for cell in cells]
            lines.append(f"<tr><th>{escape(name)}</th>" + "".join(f"<td>{cell}</td>" for cell in shown) + "</tr>")
        caption = f"<caption>{escape(grid.title)}: {escape(grid.legend)}</caption>"
        parts.append(f"<table>{caption}{''.join(lines)}</table>")
    parts += [f"<p>{escape(note)}</p>" for note in summary["notes"]]
    return "\n".join(parts)


def to_latex(summary: Evaluation) -> str:
    """All tables as LaTeX floats; they need the packages booktabs and graphicx."""
    floats = [f"% {_headline(summary)}"]
    for grid in grids(summary):
        legend = " ".join(f"{ARROWS[metric.arrow]} {escape_latex(metric.title)}" for metric in grid.metrics)
        heads = [rf"\textbf{{{escape_latex(word)}}}" for word in (grid.corner, *grid.columns)]
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
                " ".join(f"{ARROWS[v.arrow]} " + (rf"\textbf{{{v.text}}}" if v.best else v.text) for v in cell)
                for cell in cells
            ]
            lines.append(" & ".join([escape_latex(name), *shown]) + r" \\")
        caption = f"{escape_latex(grid.title)}: {legend}."
        lines += [r"\bottomrule", r"\end{tabular}}", rf"\caption{{{caption}}}", r"\end{table*}"]
        floats.append("\n".join(lines))
    return "\n\n".join(floats) + "\n"


def _headline(summary: Evaluation) -> str:
    return f"Closed-set accuracy {summary['closed_set_accuracy']:.4f} on {summary['knowns']:,} knowns."


def _escape_markdown(text: str) -> str:
    return text.replace("|", r"\|")


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "–": "--",
    "−": "$-$",
    "σ": r"$\sigma$",
    "θ": r"$\theta$",
    "’": "'",
}


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    return "".join(_LATEX.get(c, c) for c in text)
