"""The section of a refit: what changed since the last version, and what the gates said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ghost_ray.report.discover import DRIFT, AnyManifest, Result
from ghost_ray.report.document import Axis, Block, Cell, Chart, Number, Section, Series, Table
from ghost_ray.report.numbers import decimal, number, percent, plural, signed, text_cell, whole

_SHARES = {"accuracy": "Closed-set accuracy", "rejected_fraction": "Tests that reject normality"}


def version_section(result: Result, identity: str) -> Section:
    """Everything the page shows of a registry's version."""
    manifest, drift = result.manifest or AnyManifest(), result.json(DRIFT, dict[str, Any])
    version = drift.get("current") or manifest.get("version") or result.name.rsplit("/", 1)[-1]
    gates = [gate for gate in manifest.get("gates") or [] if isinstance(gate, dict)]
    blocks: list[Block] = []
    if drift.get("previous"):
        blocks.append(_table(drift, identity))
    if gates:
        blocks.append(_gates(gates, identity))
    shift = _shift_chart(drift, identity)
    if shift is not None:
        blocks.append(shift)
    return Section(
        id=identity,
        kind="version",
        title=f"Version {version}",
        source=result.name,
        verdict=f"{_change(drift)} {_passed(gates)}".strip(),
        numbers=_numbers(drift),
        blocks=blocks,
        facts=[
            (f"Classes {word}", ", ".join(map(str, drift[f"classes_{word}"])) or "none")
            for word in ("lost", "gained")
            if isinstance(drift.get(f"classes_{word}"), list)
        ],
    )


def _change(drift: dict[str, Any]) -> str:
    if not drift:
        return "What changed since the last version is not known: drift.json is missing or cannot be read."
    if not drift.get("previous"):
        return "The first version: there is nothing to compare it with."
    changed = [str(part) for part in drift.get("changed") or []]
    return f"Since {drift['previous']} {', '.join(changed) if changed else 'nothing'} changed."


def _passed(gates: list[dict[str, object]]) -> str:
    refused = [str(gate.get("text")) for gate in gates if not gate.get("passed")]
    if refused:
        return f"It did not pass: {'; '.join(refused)}."
    return f"It passed {plural(len(gates), 'gate')}." if gates else ""


def _pair(value: Any) -> tuple[float | None, float | None]:
    """[before, now]; None for what is not there."""
    return (number(value[0]), number(value[1])) if isinstance(value, list) and len(value) == 2 else (None, None)


def _numbers(drift: dict[str, Any]) -> list[Number]:
    found = []
    for field, label in _SHARES.items():
        before, now = _pair(drift.get(field))
        if now is not None:
            found.append(Number(percent(now), label.lower(), f"{percent(before)} before"))
    for name, pair in (drift.get("auoscr") or {}).items():
        before, now = _pair(pair)
        found.append(Number(decimal(now), f"AUOSCR, {name}", f"{decimal(before)} before"))
    return found[:3]


def _table(drift: dict[str, Any], identity: str) -> Table:
    rows = [_change_row(label, drift.get(field), percent, _points) for field, label in _SHARES.items()]
    for name, pair in (drift.get("auoscr") or {}).items():
        rows.append(_change_row(f"AUOSCR, {name}", pair, lambda value: decimal(value, 4), lambda d: signed(d, 4)))
    rows.append(_change_row("Correctly classified training samples", drift.get("rows"), whole, lambda d: signed(d, 0)))
    return Table(
        id=f"{identity}-drift",
        title="Before and now",
        caption=f"Before: {drift.get('previous')}. Now: {drift.get('current')}.",
        columns=["Measure", "before", "now", "change"],
        rows=rows,
        sorts=False,
    )


def _change_row(
    label: str, pair: Any, show: Callable[[float | None], str], difference: Callable[[float | None], str]
) -> list[Cell]:
    before, now = _pair(pair)
    change = now - before if before is not None and now is not None else None
    return [text_cell(label), Cell(show(before), before), Cell(show(now), now), Cell(difference(change), change)]


def _points(difference: float | None) -> str:
    """A change of a share, in percentage points."""
    return signed(None) if difference is None else f"{signed(100 * difference, 2)} points"


def _gates(gates: list[dict[str, object]], identity: str) -> Table:
    rows = [
        [
            text_cell(gate.get("text") or gate.get("name")),
            Cell(decimal(gate.get("value"), 4), number(gate.get("value"))),
            Cell(decimal(gate.get("limit"), 4), number(gate.get("limit"))),
            text_cell("✓ passed" if gate.get("passed") else "✕ refused"),
        ]
        for gate in gates
    ]
    return Table(
        id=f"{identity}-gates",
        title="The gates",
        caption="A version is promoted when no value exceeds its limit. A value that could not be measured fails.",
        columns=["Question", "value", "limit", "answer"],
        rows=rows,
        sorts=False,
    )


def _shift_chart(drift: dict[str, Any], identity: str) -> Chart | None:
    """The classes whose means moved furthest."""
    shift = drift.get("mean_shift") or {}
    rows = [(str(entry.get("name")), float(entry["shift"])) for entry in shift.get("classes") or []]
    if not rows:
        return None
    rows.sort(key=lambda row: row[1])
    names, values = [name for name, _ in rows], [value for _, value in rows]
    return Chart(
        id=f"{identity}-shift",
        title="Classes that moved most",
        caption="Mean over the dimensions of |new mean − old mean| in units of the old σ. After a change of weights "
        "the axes themselves may differ, and a large shift may mean only that.",
        says=f"The median shift is {decimal(shift.get('median'))} σ; {names[-1]} moved furthest, by "
        f"{decimal(values[-1])} σ.",
        x=Axis("shift, σ"),
        y=Axis("", scale="category", order=names),
        series=[Series("shift", x=values, y=names, kind="bar", text=[decimal(value) for value in values])],
        horizontal=True,
        height=90 + 24 * len(rows),
    )
