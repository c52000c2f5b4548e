"""The tables of a study as files: Markdown to read, LaTeX to put into a paper."""

from __future__ import annotations

from collections.abc import Sequence

from ghost_ray.jobs.evaluate.result_tables import ARROWS
from ghost_ray.jobs.evaluate.result_tables import escape_latex as escape
from ghost_ray.report.study.sheets import Box, Panel, Sheet, Text, sheets
from ghost_ray.report.study.study_findings import Study

_THICK = r"\noalign{\hrule height 1.5pt}"
_PREAMBLE = (
    r"""% In the preamble: \usepackage{array,graphicx,multirow,subfig} \newcolumntype{?}{!{\vrule width 1.5pt}}"""
)


def files_of(study: Study) -> dict[str, str]:
    """Every table's text by file name: ``overall.md``, ``overall.tex`` …"""
    made = sheets(study)
    return {f"{sheet.name}.md": markdown(sheet) for sheet in made} | {
        f"{sheet.name}.tex": latex(sheet) for sheet in made
    }


def markdown(sheet: Sheet) -> str:
    """A sheet as Markdown."""
    parts = [f"## {sheet.title}", sheet.caption]
    for panel in sheet.panels:
        if panel.title:
            parts.append(f"### {panel.title}")
        if panel.legend:
            parts.append("In each cell: " + ", ".join(metric.heading for metric in panel.legend))
        over = [title for title, count in panel.groups for _ in range(count)] or [""] * len(panel.columns)
        heads = [
            *panel.corners,
            *(f"{group} {column}".strip() for group, column in zip(over, panel.columns, strict=True)),
        ]
        lines = [_line(heads), "|" + " --- |" * len(heads)]
        lines += [_line([*names, *map(_box_in_markdown, boxes)], escaped=len(names)) for names, boxes in panel.rows]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _line(words: Sequence[str], escaped: int | None = None) -> str:
    shown = [_escape_markdown(word) if escaped is None or i < escaped else word for i, word in enumerate(words)]
    return "| " + " | ".join(shown) + " |"


def _box_in_markdown(box: Box) -> str:
    texts = [_escape_markdown(part.text) for part in box]
    return " ".join(f"**{text}**" if part.bold else text for part, text in zip(box, texts, strict=True))


def _escape_markdown(text: str) -> str:
    return "".join(f"\\{c}" if c in "|*_`<[\\" else c for c in text)


def latex(sheet: Sheet) -> str:
    """A sheet as a LaTeX float in the paper's layout."""
    lines = [_PREAMBLE, r"\begin{table*}", r"\centering", r"\small"]
    single = len(sheet.panels) == 1
    for place, panel in enumerate(sheet.panels):
        width = r".48\linewidth" if sheet.pairs else r"\linewidth"
        box = [rf"\resizebox{{{width}}}{{!}}{{", *_tabular(panel), "}"]
        if not single:
            # Panels of a pair are side by side; others below each other.
            end = r"}\quad" if sheet.pairs and place % 2 == 0 else "}\n"
            box = [rf"\subfloat[{escape(panel.title)}]{{", *box, end]
        lines += box
    lines += [rf"\caption{{\textbf{{{escape(sheet.title)}.}} {escape(sheet.caption)}}}", rf"\label{{tab:{sheet.name}}}"]
    return "\n".join([*lines, r"\end{table*}"]) + "\n"


def _tabular(panel: Panel) -> list[str]:
    if panel.legend:
        return _several_in_a_cell(panel)
    names, columns = len(panel.corners), len(panel.columns)
    spec = "l" * names + "?" + "|".join("c" * columns)
    heads = [*(_bold(corner) for corner in panel.corners), *(_bold(column) for column in panel.columns)]
    lines = [rf"\begin{{tabular}}{{@{{}}{spec}@{{}}}}", rf"{' & '.join(heads)} \\ {_THICK}"]
    for place, (row, boxes) in enumerate(panel.rows):
        cells = [*(escape(name) for name in row), *(_box(box) for box in boxes)]
        ends_block = panel.block and (place + 1) % panel.block == 0 and place + 1 < len(panel.rows)
        lines.append(rf"{' & '.join(cells)} \\" + (r" \hline" if ends_block else ""))
    return [*lines, r"\end{tabular}"]


def _several_in_a_cell(panel: Panel) -> list[str]:
    """Tables 1 and 5: a heading with the metrics, one with the networks, one with the methods."""
    columns = len(panel.columns)
    groups = list(panel.groups) or [("", columns)]
    # A thick rule after each group of columns but the last, a thin one between the columns of a group.
    ends = [kind for _, count in groups for kind in [*["|"] * (count - 1), "?"]]
    ends[-1] = ""
    legend = " ".join(rf"\textbf{{{ARROWS[metric.arrow]} {escape(metric.title)}}}" for metric in panel.legend)
    under = rf"\cline{{2-{columns + 1}}}"
    rows = 3 if panel.groups else 2
    corner = rf"\multicolumn{{1}}{{c?}}{{\multirow{{{rows}}}{{*}}{{{_bold(panel.corners[0])}}}}}"
    blank = r"\multicolumn{1}{c?}{}"
    lines = [
        rf"\begin{{tabular}}{{l?{'c' * columns}}}",
        rf"{corner} & \multicolumn{{{columns}}}{{c}}{{{legend}}} \\ {under}",
    ]
    if panel.groups:
        heads = [
            rf"\multicolumn{{{count}}}{{c{'?' if place + 1 < len(groups) else ''}}}{{{_bold(title)}}}"
            for place, (title, count) in enumerate(groups)
        ]
        lines.append(rf"{blank} & {' & '.join(heads)} \\ {under}")
    heads = [_ruled(end, _bold(column)) for end, column in zip(ends, panel.columns, strict=True)]
    lines.append(rf"{blank} & {' & '.join(heads)} \\ {_THICK}")
    for names, boxes in panel.rows:
        cells = [_ruled(end, _box(box)) for end, box in zip(ends, boxes, strict=True)]
        lines.append(rf"{escape(names[0])} & {' & '.join(cells)} \\")
    return [*lines, r"\end{tabular}"]


def _ruled(end: str, content: str) -> str:
    return rf"\multicolumn{{1}}{{c{end}}}{{{content}}}"


def _bold(text: str) -> str:
    return rf"\textbf{{{escape(text)}}}" if text else ""


def _box(box: Box) -> str:
    return " ".join(_text(part) for part in box)


def _text(part: Text) -> str:
    shown = escape(part.text)
    arrow = f"{ARROWS[part.arrow]} " if part.arrow else ""
    return arrow + (rf"\textbf{{{shown}}}" if part.bold else shown)
