"""The section of an evaluation: how GHOST does beside its rivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ghost_ray import metrics
from ghost_ray.jobs.evaluate.findings import Evaluation
from ghost_ray.metrics import Metric
from ghost_ray.report.class_table import class_table
from ghost_ray.report.curves import curve_tabs
from ghost_ray.report.discover import Result
from ghost_ray.report.document import Block, Cell, Number, Section, Table
from ghost_ray.report.evaluation_verdict import GHOST, evaluation_verdict, mean_over
from ghost_ray.report.figure3 import figure3
from ghost_ray.report.numbers import decimal, number, percent, text_cell, whole
from ghost_ray.report.pictures import galleries
from ghost_ray.report.significance_table import proofs, significance_table
from ghost_ray.report.z_scores import z_score_chart
from ghost_ray.scorers import title_of

Found = dict[tuple[str, str], Mapping[str, object]]  # an object of metrics.json per method and unknown set or group


def evaluation_section(result: Result, identity: str, room: float) -> Section:
    """Everything the page shows of an evaluation, from the files that exist.

    ``room`` is its share of the page's space for data.
    """
    content = result.json("metrics.json", Evaluation)
    rows = [row for row in content.get("results") or [] if isinstance(row, dict)]
    groups = {
        (str(row.get("method")), f"{row.get('group')} (mean)"): row
        for row in content.get("groups") or []
        if isinstance(row, dict)
    }
    methods = list(dict.fromkeys(str(row.get("method")) for row in rows))
    methods.sort(key=lambda name: name != GHOST)
    sets = list(dict.fromkeys(str(row.get("unknown")) for row in rows))
    found: Found = {(str(row.get("method")), str(row.get("unknown"))): row for row in rows}
    found.update(groups)
    blocks: list[Block] = []
    if rows:
        shown = [*sets, *dict.fromkeys(mean for _, mean in groups)]
        blocks += [_paper_table(found, methods, shown, identity), _full_table(found, methods, shown, identity)]
    unknowns = content.get("unknowns")
    tabs = curve_tabs(result, methods, sets, unknowns if isinstance(unknowns, dict) else {}, identity, room)
    if tabs:
        blocks.append(tabs)
    for block in (
        z_score_chart(result, identity),
        figure3(result, identity),
        significance_table(result, identity),
        class_table(result, methods, identity, room),
    ):
        if block is not None:
            blocks.append(block)
    if methods:
        blocks += galleries(dict.fromkeys(sets, result.uri), methods[0], identity)
    return Section(
        id=identity,
        kind="evaluation",
        title="Evaluation",
        source=result.name,
        verdict=evaluation_verdict(found, methods, sets, proofs(result)),
        numbers=_numbers(content, found, methods, sets),
        blocks=blocks,
        facts=_facts(content, methods),
        notes=[str(note) for note in content.get("notes") or []],
    )


def _numbers(content: Evaluation, found: Found, methods: list[str], sets: list[str]) -> list[Number]:
    note = f"of {whole(content.get('knowns'))} knowns; the same for every method"
    accuracy = Number(percent(content.get("closed_set_accuracy"), 1), "closed-set accuracy", note)
    if not methods:
        return [accuracy] if number(content.get("closed_set_accuracy")) is not None else []
    main = GHOST if GHOST in methods else methods[0]
    over = f"mean over {len(sets)} unknown sets" if len(sets) > 1 else f"against {', '.join(sets)}"
    osr, ood = (decimal(mean_over(found, main, sets, field)) for field in ("auoscr", "auroc"))
    return [
        Number(osr, f"AUOSCR of {title_of(main)}", f"cannot exceed the accuracy; {over}"),
        accuracy,
        Number(ood, f"AUROC of {title_of(main)}", f"known against unknown; {over}"),
    ]


def _facts(content: Evaluation, methods: list[str]) -> list[tuple[str, str]]:
    unknowns = content.get("unknowns")
    facts = [("Classes", whole(content.get("classes"))), ("Dimensions", whole(content.get("dimensions")))]
    facts += [("Knowns", whole(content.get("knowns"))), ("Methods", ", ".join(map(title_of, methods)))]
    if isinstance(unknowns, dict):
        facts += [(f"Unknowns, {name}", whole(count)) for name, count in unknowns.items()]
    return [(name, value) for name, value in facts if value not in ("–", "")]


def _shown(entries: Sequence[Metric], found: Found) -> list[Metric]:
    """The metrics that the results have: those of an earlier version lack what was added later."""
    return [metric for metric in entries if any(metric.field in row for row in found.values())]


def _cells(found: Found, methods: list[str], name: str, entries: Sequence[Metric]) -> list[list[Cell]]:
    """One list of cells per method, one cell per metric; values that look like the best are bold, as in the paper."""
    cells: list[list[Cell]] = [[] for _ in methods]
    for metric in entries:
        values = [number(found.get((method, name), {}).get(metric.field)) for method in methods]
        best = metric.best(values)
        for cell, value in zip(cells, values, strict=True):
            cell.append(Cell(decimal(value), value, best is not None and decimal(value) == decimal(best)))
    return cells


def _paper_table(found: Found, methods: list[str], sets: list[str], identity: str) -> Table:
    """The paper's table: unknown sets down, methods across, AUOSCR, AUROC and FPR95 in each cell."""
    entries = _shown(next(iter(metrics.tables().values())), found)
    rows = []
    for name in sets:
        row = [text_cell(name)]
        for cells in _cells(found, methods, name, entries):
            lines = [
                replace(cell, text=f"{metric.arrow} {cell.text}") for metric, cell in zip(entries, cells, strict=True)
            ]
            row.append(Cell("", lines[0].value, lines=lines))
        rows.append(row)
    legend = ", ".join(metric.heading for metric in entries)
    return Table(
        id=f"{identity}-paper",
        title="The paper’s table",
        caption=f"From top to bottom in each cell: {legend}. ↑ more is better, ↓ less is better; the best of a row is "
        "bold.",
        columns=["Unknowns", *(title_of(method) for method in methods)],
        rows=rows,
    )


def _full_table(found: Found, methods: list[str], sets: list[str], identity: str) -> Table:
    entries = _shown(metrics.in_report(), found)
    return Table(
        id=f"{identity}-metrics",
        title="Every metric",
        caption=" ".join(f"{metric.title}: {metric.meaning}." for metric in entries),
        columns=["Unknowns", "Method", *(metric.heading for metric in entries)],
        rows=[
            [text_cell(name), text_cell(title_of(method)), *cells]
            for name in sets
            for method, cells in zip(methods, _cells(found, methods, name, entries), strict=True)
        ],
    )
