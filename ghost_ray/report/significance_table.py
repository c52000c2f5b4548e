"""Whether the differences are significant."""

from __future__ import annotations

from ghost_ray.jobs.evaluate.findings import PairedTest, Significance
from ghost_ray.metrics import as_read, registered
from ghost_ray.report.discover import Result
from ghost_ray.report.document import Cell, Table
from ghost_ray.report.evaluation_verdict import Outcome
from ghost_ray.report.numbers import number, percent, plural, signed, small, text_cell, whole
from ghost_ray.scorers import title_of


def significance_table(result: Result, identity: str) -> Table | None:
    """The paired tests of every other method against GHOST, one row each; None if there are none."""
    content = result.json("significance.json", Significance)
    tests = [test for test in content.get("tests") or [] if isinstance(test, dict)]
    if not tests:
        return None
    rows: dict[tuple[str, str], dict[str, PairedTest]] = {}
    for test in tests:
        rows.setdefault((str(test.get("unknown")), str(test.get("method"))), {})[str(test.get("metric"))] = test
    tested = [metric for metric in as_read() if any(metric.field in row for row in rows.values())]
    better, worse = (sum(_better(test) == who for test in tests) for who in ("GHOST", "rival"))
    notes = sorted({str(test["note"]) for test in tests if test.get("note")})
    return Table(
        id=f"{identity}-significance",
        title="More than chance?",
        caption=f"Method − GHOST, and p of a paired two-sided t-test over {_draws(content)}, after Bonferroni’s "
        f"correction; a difference counts below {percent(content.get('alpha'), 0)}. Of {plural(len(tests), 'test')} "
        f"GHOST is better in {better}, the other method in {worse}, and in {len(tests) - better - worse} no difference "
        "is shown."
        + "".join(f" Where there is no t: {note}." for note in notes)
        + "".join(f" {_sentence(str(note).removeprefix('significance: '))}" for note in content.get("notes") or []),
        columns=["Unknowns", "Method", *(metric.title for metric in tested)],
        rows=[
            [text_cell(unknown), text_cell(title_of(method)), *(_cell(row.get(metric.field)) for metric in tested)]
            for (unknown, method), row in rows.items()
        ],
    )


def _draws(content: Significance) -> str:
    """How much was drawn: of a set that has no more rows than a draw, less than that."""
    size, drawn = content.get("draw_size"), content.get("drawn")
    less = isinstance(drawn, dict) and any(rows != size for rows in drawn.values())
    return (
        f"{whole(content.get('draws'))} seeded draws of {'at most ' if less else ''}{whole(size)} knowns and unknowns"
    )


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."


def proofs(result: Result) -> dict[str, list[Outcome]]:
    """For each method what the tests of its AUOSCR against GHOST's say, one answer per unknown set."""
    found: dict[str, list[Outcome]] = {}
    for test in result.json("significance.json", Significance).get("tests") or []:
        if isinstance(test, dict) and test.get("metric") == "auoscr":
            found.setdefault(str(test.get("method")), []).append(_better(test))
    return found


def _better(test: PairedTest) -> Outcome:
    difference = number(test.get("difference"))
    if not test.get("significant") or not difference:
        return "none"
    lower_is_better = test.get("metric") in [metric.field for metric in registered() if metric.better == "low"]
    return "GHOST" if (difference > 0) == lower_is_better else "rival"


def _cell(test: PairedTest | None) -> Cell:
    if test is None:
        return Cell("–")
    difference, better = number(test.get("difference")), _better(test)
    word = {"GHOST": "GHOST better", "rival": "GHOST worse", "none": "no difference"}[better]
    p = small(test.get("p_bonferroni"))
    lines = [Cell(f"{signed(difference)}  {word}", difference, best=better != "none"), Cell(f"p {p}")]
    return Cell("", difference, lines=lines)
