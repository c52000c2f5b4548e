"""The table of faults in docs/operations.md: the fault tests say what they saw, and the page must say the same.

A test marked ``@pytest.mark.fault(job, what)`` takes the fixture ``fault`` and ends with ``fault.ended(outcome)``. With
``GHOST_RAY_WRITE_DOCS=1`` the row is written into the page; otherwise it must stand there word for word.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "operations.md"
_BEGIN, _END = "<!-- fault table, made by the fault tests -->\n", "<!-- end of the fault table -->"
_HEAD = "| job | fault | outcome |\n|---|---|---|\n"
_JOBS = ("extract", "fit", "audit", "refit")

Key = tuple[str, str]  # job and fault


def read_table() -> dict[Key, str]:
    """Outcome by job and fault, as the page has it."""
    table = PAGE.read_text().split(_BEGIN)[1].split(_END)[0].removeprefix(_HEAD)
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table.splitlines()]
    return {(job, what): outcome for job, what, outcome in rows}


def _write_row(key: Key, outcome: str) -> None:
    text = PAGE.read_text()
    before, rest = text.split(_BEGIN)
    rows = {**read_table(), key: outcome}
    ordered = sorted(rows, key=lambda key: (_JOBS.index(key[0]), key[1]))
    lines = "".join(f"| {job} | {what} | {rows[job, what]} |\n" for job, what in ordered)
    PAGE.write_text(before + _BEGIN + _HEAD + lines + _END + rest.split(_END)[1])


class Fault:
    """What a test does to a job, and how that ended."""

    def __init__(self, key: Key) -> None:
        self.key, self.outcome = key, ""

    def ended(self, outcome: str) -> None:
        self.outcome = outcome


@pytest.fixture
def fault(request: pytest.FixtureRequest) -> Iterator[Fault]:
    marker = request.node.get_closest_marker("fault")
    job, what = marker.args
    seen = Fault((job, what))
    yield seen
    if not seen.outcome:
        return  # the test failed before it knew
    if os.environ.get("GHOST_RAY_WRITE_DOCS"):
        _write_row(seen.key, seen.outcome)
    assert read_table().get(seen.key) == seen.outcome, "GHOST_RAY_WRITE_DOCS=1 brings docs/operations.md up to date"
