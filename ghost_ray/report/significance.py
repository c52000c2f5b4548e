"""Whether the differences are more than chance."""

from __future__ import annotations

from typing import Any

from ghost_ray.evaluate.tables import display_name
from ghost_ray.report.discover import Result
from ghost_ray.report.document import Cell, Table
from ghost_ray.report.numbers import number, percent, signed, small, text_cell, whole

_TITLES = {"auoscr": "AUOSCR", "auroc": "AUROC", "fpr95": "FPR95"}
_BETTER_IF_LOW = ("fpr95",)


def significance_table(result: Result, identity: str) -> Table | None:
    """The paired tests of every rival against GHOST, a row each; None where there are none."""
    content = result.json("significance.json") or {}
    tests = [test for test in content.get("tests") or [] if isinstance(test, dict)]
    if not tests:
        return None
    rows: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for test in tests:
        rows.setdefault((str(test.get("unknown")), str(test.get("method"))), {})[str(test.get("metric"))] = test
    metrics = [metric for metric in _TITLES if any(metric in row for row in rows.values())]
    better = sum(_word(test) == "GHOST better" for test in tests)
    worse = sum(_word(test) == "rival better" for test in tests)
    notes = sorted({str(test["note"]) for test in tests if test.get("note")})
    draws = f"{whole(content.get('draws'))} seeded draws of {whole(content.get('draw_size'))} knowns and unknowns"
    return Table(
        id=f"{identity}-significance",
        title="More than chance?",
        caption=f"Rival − GHOST, and p of a paired two-sided t-test over {draws}, after Bonferroni’s correction; "
        f"called a difference below {percent(content.get('alpha'), 0)}. Of {len(tests)} tests GHOST is better in "
        f"{better}, the rival in {worse}, and in {len(tests) - better - worse} no difference is shown."
        + "".join(f" Where no test could be made: {note}." for note in notes)
        + "".join(f" {str(note).removeprefix('significance: ').capitalize()}." for note in content.get("notes") or []),
        columns=["Unknowns", "Rival", *(_TITLES[metric] for metric in metrics)],
        rows=[
            [text_cell(unknown), text_cell(display_name(method)), *(_cell(row.get(metric)) for metric in metrics)]
            for (unknown, method), row in rows.items()
        ],
    )


def proofs(result: Result) -> dict[str, list[bool]]:
    """For each rival whether its AUOSCR differs from GHOST's by more than chance, one answer an unknown set."""
    found: dict[str, list[bool]] = {}
    for test in (result.json("significance.json") or {}).get("tests") or []:
        if isinstance(test, dict) and test.get("metric") == "auoscr":
            found.setdefault(str(test.get("method")), []).append(bool(test.get("significant")))
    return found


def _word(test: dict[str, Any]) -> str:
    if not test.get("significant"):
        return "no difference"
    above = (number(test.get("difference")) or 0.0) > 0
    return "GHOST better" if above == (test.get("metric") in _BETTER_IF_LOW) else "rival better"


def _cell(test: dict[str, Any] | None) -> Cell:
    if test is None:
        return Cell("–")
    difference, word = number(test.get("difference")), _word(test)
    p = small(test.get("p_bonferroni"))
    lines = [Cell(f"{signed(difference)}  {word}", difference, best=word == "GHOST better"), Cell(f"p {p}")]
    return Cell("", difference, lines=lines)
