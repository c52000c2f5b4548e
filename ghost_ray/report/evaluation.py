"""The section of an evaluation: how GHOST does beside its rivals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ghost_ray.evaluate.tables import TABLES, UP, Metric, display_name
from ghost_ray.report.classes import class_table
from ghost_ray.report.curves import curve_tabs, z_score_chart
from ghost_ray.report.discover import Result
from ghost_ray.report.document import Block, Cell, Number, Section, Table
from ghost_ray.report.figure3 import figure3
from ghost_ray.report.numbers import decimal, number, percent, plural, text_cell, whole
from ghost_ray.report.significance import proofs, significance_table

GHOST = "ghost"
_PAPER = TABLES[0][1]
_ALL = (
    *(metric for _, metrics in TABLES for metric in metrics),
    Metric("openood_fpr95", "OpenOOD FPR95", "↓"),
    Metric("ccr_mean", "mean CCR", UP),
)


def evaluation_section(result: Result, identity: str, room: float) -> Section:
    """Everything the page shows of an evaluation, from whatever of its files is there.

    ``room`` is the share of the page's room for data that is its own.
    """
    metrics = result.json("metrics.json") or {}
    rows = [row for row in metrics.get("results") or [] if isinstance(row, dict)]
    groups = [
        {**row, "unknown": f"{row.get('group')} (mean)"} for row in metrics.get("groups") or [] if isinstance(row, dict)
    ]
    methods = list(dict.fromkeys(str(row.get("method")) for row in rows))
    methods.sort(key=lambda name: name != GHOST)
    sets = list(dict.fromkeys(str(row.get("unknown")) for row in rows))
    found = {(str(row.get("method")), str(row.get("unknown"))): row for row in [*rows, *groups]}
    blocks: list[Block] = []
    if rows:
        shown = [*sets, *dict.fromkeys(str(row["unknown"]) for row in groups)]
        blocks += [_paper_table(found, methods, shown, identity), _full_table(found, methods, shown, identity)]
    tabs = curve_tabs(result, methods, sets, identity, room)
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
    return Section(
        id=identity,
        kind="evaluation",
        title="Evaluation",
        source=result.name,
        verdict=_verdict(found, methods, sets, proofs(result)),
        numbers=_numbers(metrics, found, methods, sets),
        blocks=blocks,
        facts=_facts(metrics, methods),
        notes=[str(note) for note in metrics.get("notes") or []],
    )


def _mean(found: dict[tuple[str, str], dict[str, Any]], method: str, sets: Sequence[str], field: str) -> float | None:
    values = [number(found.get((method, name), {}).get(field)) for name in sets]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _verdict(
    found: dict[tuple[str, str], dict[str, Any]], methods: list[str], sets: list[str], proven: dict[str, list[bool]]
) -> str:
    if not found:
        return "The evaluation has no result yet: its metrics.json is missing or cannot be read."
    means = {method: _mean(found, method, sets, "auoscr") for method in methods}
    known = {method: value for method, value in means.items() if value is not None}
    rivals = {method: value for method, value in known.items() if not _is_ghost(method)}
    if GHOST not in known or not rivals:
        return f"{plural(len(methods), 'method')} measured on {plural(len(sets), 'unknown set')}."
    rival = max(rivals, key=rivals.__getitem__)
    won = [name for name in sets if _leads(found, methods, name)]
    difference = known[GHOST] - known[rival]
    begins, side = ("GHOST leads", "above") if difference > 0 else ("GHOST does not lead", "below")
    return (
        f"{begins}: its mean AUOSCR is {decimal(known[GHOST])}, {decimal(abs(difference))} {side} the best rival’s "
        f"({display_name(rival)}, {decimal(known[rival])}). It is ahead on {len(won)} of "
        f"{plural(len(sets), 'unknown set')}.{_sure(display_name(rival), proven.get(rival, []))}{_variant(known)}"
    )


def _is_ghost(method: str) -> bool:
    """GHOST itself or a variant of it, which is no rival."""
    return method == GHOST or method.startswith(f"{GHOST}-")


def _sure(rival: str, proven: list[bool]) -> str:
    if not proven:
        return ""
    return f" Paired tests call the difference from {rival} more than chance on {sum(proven)} of {len(proven)}."


def _variant(known: dict[str, float]) -> str:
    better = {method: value for method, value in known.items() if _is_ghost(method) and value > known[GHOST]}
    if not better:
        return ""
    best = max(better, key=better.__getitem__)
    return f" Its variant {display_name(best)} does better still ({decimal(better[best])})."


def _leads(found: dict[tuple[str, str], dict[str, Any]], methods: list[str], name: str) -> bool:
    """Whether GHOST is ahead of every rival on an unknown set."""
    values = {method: number(found.get((method, name), {}).get("auoscr")) for method in methods}
    mine = values[GHOST]
    return mine is not None and all(v is None or v < mine for m, v in values.items() if not _is_ghost(m))


def _numbers(
    metrics: dict[str, Any], found: dict[tuple[str, str], dict[str, Any]], methods: list[str], sets: list[str]
) -> list[Number]:
    note = f"of {whole(metrics.get('knowns'))} knowns; the same for every method"
    accuracy = Number(percent(metrics.get("closed_set_accuracy"), 1), "closed-set accuracy", note)
    if not methods:
        return [accuracy] if number(metrics.get("closed_set_accuracy")) is not None else []
    main = GHOST if GHOST in methods else methods[0]
    over = f"mean over {plural(len(sets), 'unknown set')}"
    osr, ood = (decimal(_mean(found, main, sets, field)) for field in ("auoscr", "auroc"))
    return [
        Number(osr, f"AUOSCR of {display_name(main)}", f"cannot exceed the accuracy; {over}"),
        accuracy,
        Number(ood, f"AUROC of {display_name(main)}", f"known against unknown; {over}"),
    ]


def _facts(metrics: dict[str, Any], methods: list[str]) -> list[tuple[str, str]]:
    unknowns = metrics.get("unknowns")
    facts = [("Classes", whole(metrics.get("classes"))), ("Dimensions", whole(metrics.get("dimensions")))]
    facts += [("Knowns", whole(metrics.get("knowns"))), ("Methods", ", ".join(map(display_name, methods)))]
    if isinstance(unknowns, dict):
        facts += [(f"Unknowns, {name}", whole(count)) for name, count in unknowns.items()]
    return [(name, value) for name, value in facts if value not in ("–", "")]


def _best(found: dict[tuple[str, str], dict[str, Any]], methods: list[str], name: str, metric: Metric) -> str | None:
    """How the best value of a row looks; values that look the same are all the best, as in the paper."""
    known = [v for m in methods if (v := number(found.get((m, name), {}).get(metric.field))) is not None]
    if len(known) < 2:
        return None
    return decimal((max if metric.direction == UP else min)(known))


def _paper_table(
    found: dict[tuple[str, str], dict[str, Any]], methods: list[str], sets: list[str], identity: str
) -> Table:
    """The paper's table: unknown sets down, methods across, AUOSCR, AUROC and FPR95 in each cell."""
    rows = []
    for name in sets:
        row = [text_cell(name)]
        for method in methods:
            result = found.get((method, name), {})
            lines = []
            for metric in _PAPER:
                text = decimal(result.get(metric.field))
                best = text == _best(found, methods, name, metric)
                lines.append(Cell(f"{metric.direction} {text}", number(result.get(metric.field)), best))
            row.append(Cell("", lines[0].value, lines=lines))
        rows.append(row)
    legend = ", ".join(f"{metric.direction} {metric.title}" for metric in _PAPER)
    return Table(
        id=f"{identity}-paper",
        title="The paper’s table",
        caption=f"From top to bottom in each cell: {legend}. ↑ more is better, ↓ less is better; the best of a row is "
        "bold.",
        columns=["Unknowns", *(display_name(method) for method in methods)],
        rows=rows,
    )


def _full_table(
    found: dict[tuple[str, str], dict[str, Any]], methods: list[str], sets: list[str], identity: str
) -> Table:
    rows = []
    for name in sets:
        for method in methods:
            result = found.get((method, name), {})
            row = [text_cell(name), text_cell(display_name(method))]
            for metric in _ALL:
                text = decimal(result.get(metric.field))
                best = text == _best(found, methods, name, metric)
                row.append(Cell(text, number(result.get(metric.field)), best))
            rows.append(row)
    return Table(
        id=f"{identity}-metrics",
        title="Every metric",
        caption="F@C95: lowest share of unknowns accepted while keeping 95 % of the closed-set accuracy. V: standard "
        "deviation over mean of the classes’ CCR at FPR 10 %, less is fairer. OpenOOD’s FPR95 takes unknowns as "
        "positives: do not compare it with FPR95.",
        columns=["Unknowns", "Method", *(f"{metric.direction} {metric.title}" for metric in _ALL)],
        rows=rows,
    )
