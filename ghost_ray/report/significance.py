"""Whether the differences are more than chance."""

from __future__ import annotations

from typing import Any

from ghost_ray.evaluate.tables import display_name
from ghost_ray.report.discover import Result
from ghost_ray.report.document import Cell, Table
from ghost_ray.report.numbers import decimal_cell, number, signed, small_cell, text_cell, whole

_BETTER_IF_LOW = {"fpr95"}


def significance_table(result: Result, identity: str) -> Table | None:
    """The paired tests of every rival against GHOST as a table; None where there are none."""
    content = result.json("significance.json")
    tests = (content or {}).get("tests")
    if not content or not tests:
        return None
    draws = f"{whole(content.get('draws'))} seeded draws of {whole(content.get('draw_size'))} knowns and unknowns"
    return Table(
        id=f"{identity}-significance",
        title="More than chance?",
        caption=f"Paired two-sided t-tests of each rival against GHOST over {draws}, p after Bonferroni’s correction. The "
        "difference is rival − GHOST.",
        columns=["Unknowns", "Metric", "Rival", "mean", "GHOST’s mean", "difference", "p", "Verdict"],
        rows=[_row(test) for test in tests],
    )


def _row(test: dict[str, Any]) -> list[Cell]:
    metric = str(test.get("metric", ""))
    difference = number(test.get("difference"))
    if not test.get("significant"):
        verdict = "no difference shown"
    else:
        worse = (difference or 0) > 0 if metric in _BETTER_IF_LOW else (difference or 0) < 0
        verdict = "GHOST better" if worse else "rival better"
    if test.get("note"):
        verdict = f"{verdict} ({test['note']})"
    return [
        text_cell(test.get("unknown", "")),
        text_cell(metric.upper()),
        text_cell(display_name(str(test.get("method", "")))),
        decimal_cell(test.get("mean")),
        decimal_cell(test.get("reference_mean")),
        Cell(signed(difference), difference),
        small_cell(test.get("p_bonferroni")),
        text_cell(verdict),
    ]
