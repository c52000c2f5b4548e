"""The fault tables in docs/operations.md: the fault tests report what they saw, and the page must say the same.

A test marked ``@pytest.mark.fault(job, what)`` takes the fixture ``fault`` and ends with ``fault.ended(outcome)``. With
``GHOST_RAY_WRITE_DOCS=1`` the row is written into the page; otherwise it must be there word for word. Faults of a
registry have a separate table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
_JOBS = ("extract", "fit", "audit", "refit", "registry")

Key = tuple[str, str]  # job and fault


@dataclass(frozen=True)
class _Table:
    """A table of the page, and the jobs in it; if there are several, the job is a column."""

    name: str
    jobs: tuple[str, ...]

    @property
    def begin(self) -> str:
        return f"<!-- {self.name}, made by the fault tests -->\n"

    @property
    def end(self) -> str:
        return f"<!-- end of the {self.name} -->"

    @property
    def head(self) -> str:
        return (
            "| job | fault | outcome |\n|---|---|---|\n" if len(self.jobs) > 1 else "| fault | outcome |\n|---|---|\n"
        )

    def read(self, text: str) -> dict[Key, str]:
        rows = {}
        for line in text.split(self.begin)[1].split(self.end)[0].removeprefix(self.head).splitlines():
            *job, what, outcome = [cell.strip() for cell in line.strip("|").split("|")]
            rows[(*job, *self.jobs)[0], what] = outcome
        return rows

    def written(self, text: str, rows: dict[Key, str]) -> str:
        """The page with these rows in the table."""
        ordered = sorted(rows, key=lambda key: (_JOBS.index(key[0]), key[1]))
        cells = [((job,) if len(self.jobs) > 1 else ()) + (what, rows[job, what]) for job, what in ordered]
        lines = "".join(f"| {' | '.join(row)} |\n" for row in cells)
        before, rest = text.split(self.begin)
        return before + self.begin + self.head + lines + self.end + rest.split(self.end)[1]


_TABLES = (_Table("fault table", _JOBS[:-1]), _Table("registry table", _JOBS[-1:]))


def read_table() -> dict[Key, str]:
    """Outcome by job and fault, as the page has it."""
    text = PAGE.read_text()
    return {key: outcome for table in _TABLES for key, outcome in table.read(text).items()}


def _write_row(key: Key, outcome: str) -> None:
    text = PAGE.read_text()
    table = next(table for table in _TABLES if key[0] in table.jobs)
    PAGE.write_text(table.written(text, {**table.read(text), key: outcome}))


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
