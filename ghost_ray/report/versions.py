"""The section of a refit: what changed since the last version."""

from __future__ import annotations

from typing import Any

from ghost_ray.evaluate.tables import display_name
from ghost_ray.report.discover import DRIFT, Result
from ghost_ray.report.document import Axis, Block, Cell, Chart, Number, Section, Series, Table
from ghost_ray.report.numbers import decimal, number, percent, signed, text_cell

_SHOWN = 20


def version_section(result: Result, identity: str) -> Section:
    """Everything the page shows of a registry's version."""
    drift = result.json(DRIFT)
    title = f"Version {(drift or {}).get('current') or result.name.rsplit('/', 1)[-1]}"
    if not drift or not drift.get("previous"):
        return Section(
            identity, "version", title, result.name, "The first version: there is nothing to compare it with."
        )
    blocks: list[Block] = [_table(drift, identity)]
    shift = _shift_chart(drift, identity)
    if shift is not None:
        blocks.append(shift)
    changed = [str(item) for item in drift.get("changed") or []]
    verdict = f"Since {drift['previous']}: " + ("; ".join(changed) if changed else "nothing of note changed") + "."
    return Section(
        id=identity,
        kind="version",
        title=title,
        source=result.name,
        verdict=verdict,
        numbers=[
            _number("closed-set accuracy", drift.get("accuracy"), share=True),
            _number("of tests reject normality", drift.get("rejected_fraction"), share=True),
            *(_number(f"AUOSCR, {name}", pair) for name, pair in list(_pairs(drift.get("auoscr")).items())[:1]),
        ],
        blocks=blocks,
        facts=[
            (f"Classes {word}", ", ".join(map(str, drift[f"classes_{word}"])) or "none")
            for word in ("lost", "gained")
            if isinstance(drift.get(f"classes_{word}"), list)
        ],
    )


def _pairs(content: Any) -> dict[str, list[Any]]:
    """name → [old, new] for every pair, at whatever depth it lies."""
    found: dict[str, list[Any]] = {}
    if isinstance(content, list) and len(content) == 2:
        return {"": content}
    if isinstance(content, dict):
        for name, item in content.items():
            for below, pair in _pairs(item).items():
                found[f"{name} {below}".strip()] = pair
    return found


def _number(label: str, pair: Any, share: bool = False) -> Number:
    old, new = (number(v) for v in pair) if isinstance(pair, list) and len(pair) == 2 else (None, None)
    show = percent if share else decimal
    return Number(show(new), label, f"was {show(old)}")


def _table(drift: dict[str, Any], identity: str) -> Table:
    rows = []
    entries = [
        ("Closed-set accuracy", drift.get("accuracy")),
        ("Tests rejecting normality", drift.get("rejected_fraction")),
    ]
    entries += [(f"AUOSCR, {display_name(name)}", pair) for name, pair in _pairs(drift.get("auoscr")).items()]
    for name, pair in entries:
        if not (isinstance(pair, list) and len(pair) == 2):
            continue
        old, new = number(pair[0]), number(pair[1])
        difference = new - old if old is not None and new is not None else None
        rows.append(
            [
                text_cell(name),
                Cell(decimal(old, 4), old),
                Cell(decimal(new, 4), new),
                Cell(signed(difference, 4), difference),
            ]
        )
    return Table(
        id=f"{identity}-drift",
        title="Old and new",
        caption=f"From {drift.get('previous')} to {drift.get('current') or 'this version'}.",
        columns=["Measure", "before", "now", "change"],
        rows=rows,
        sorts=False,
    )


def _shift_chart(drift: dict[str, Any], identity: str) -> Chart | None:
    """The classes whose means moved furthest."""
    shift = drift.get("mean_shift")
    entries = shift.get("classes", shift) if isinstance(shift, dict) else shift
    rows: list[tuple[str, float]] = []
    if isinstance(entries, dict):
        rows = [(str(name), value) for name, item in entries.items() if (value := number(item)) is not None]
    elif isinstance(entries, list):
        for item in entries:
            if isinstance(item, dict):
                value = number(item.get("shift", item.get("value")))
                if value is not None:
                    rows.append((str(item.get("name", item.get("class"))), value))
    if not rows:
        return None
    rows = sorted(rows, key=lambda row: row[1])[-_SHOWN:]
    return Chart(
        id=f"{identity}-shift",
        title="Classes that moved most",
        caption="Mean over the dimensions of |new mean − old mean| in units of the old σ.",
        says="Largest shifts: " + ", ".join(f"{name} {value:.3f} σ" for name, value in reversed(rows[-5:])) + ".",
        x=Axis("shift, σ"),
        y=Axis("", scale="category"),
        series=[
            Series(
                "shift", x=[v for _, v in rows], y=[n for n, _ in rows], kind="bar", text=[f"{v:.3f}" for _, v in rows]
            )
        ],
        horizontal=True,
        height=90 + 24 * len(rows),
    )
