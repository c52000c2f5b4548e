"""Metrics by name: one entry holds everything that results, tables, tests, pages and terminals need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, cast

from ghost_ray.metrics.scores import OpenSetScores

RESERVED = ("method", "unknown", "group", "sets", "knowns", "unknowns", "undefined")  # in an object of metrics.json
Measure = Callable[[OpenSetScores], float | None]
Reason = Callable[[OpenSetScores], str]


@dataclass(frozen=True)
class Metric:
    """One number that is read from the scores of a method on knowns and one unknown set.

    It also says where the metric is shown: metrics.json has every metric, in the order of registration.
    """

    field: str  # its name in metrics.json
    title: str  # its name in tables
    meaning: str  # one sentence without a full stop
    of: Measure  # None, or a number that is not finite: not defined for these scores
    better: Literal["high", "low"] | None  # None: neither is
    undefined: str | Reason = "has no value for these scores"  # why, where it is not defined
    averaged: bool = True  # over the unknown sets of a group
    table: str | None = None  # title of the paper-like table it is in: table.md, table.tex, terminal and report
    leads: bool = False  # comes first wherever metrics are shown
    in_report: bool = False  # in the report's table of every metric; those of a paper-like table always are
    in_demo: bool = False  # in the demo's table
    tested: bool = False  # rivals are compared with GHOST on it

    @property
    def arrow(self) -> str:
        """The direction in which it gets better."""
        return {"high": "↑", "low": "↓", None: ""}[self.better]

    @property
    def heading(self) -> str:
        """``↑ AUOSCR``."""
        return f"{self.arrow} {self.title}".strip()

    def best(self, values: Iterable[float | None]) -> float | None:
        """The best of those values that are defined; None if fewer than two are, or none is better."""
        known = [value for value in values if value is not None]
        if self.better is None or len(known) < 2:
            return None
        return max(known) if self.better == "high" else min(known)

    def read(self, result: Mapping[str, object]) -> float | None:
        """The metric's value in an object of metrics.json; None if it is not defined or not there."""
        value = result.get(self.field)
        return value if isinstance(value, int | float) else None

    def measure(self, scores: OpenSetScores) -> tuple[float | None, str]:
        """The metric's value, or None and why it is not defined."""
        value = self.of(scores)
        if value is not None and math.isfinite(value):
            return value, ""
        return None, self.undefined if isinstance(self.undefined, str) else self.undefined(scores)


class Measured(TypedDict):
    """The metrics of some scores: every metric under its field, read by `Metric.read`, and these."""

    knowns: int
    unknowns: int
    undefined: dict[str, str]  # field of a metric that is not defined → why


_metrics: dict[str, Metric] = {}


def register(metric: Metric) -> Metric:
    """Register a metric: from now on it is computed, stored and shown."""
    if metric.field in _metrics:
        raise ValueError(f"two metrics are stored as {metric.field!r}: {_metrics[metric.field].title}, {metric.title}")
    if metric.field in RESERVED:
        raise ValueError(f"{metric.field!r} has another meaning in metrics.json")
    _metrics[metric.field] = metric
    return metric


def unregister(field: str) -> None:
    """Forget a metric."""
    del _metrics[field]


def registered() -> list[Metric]:
    """All metrics, in the order of metrics.json."""
    return list(_metrics.values())


def tables() -> dict[str, list[Metric]]:
    """The metrics of each paper-like table by its title, in the order in which people read them."""
    found: dict[str, list[Metric]] = {}
    for entry in sorted(_metrics.values(), key=lambda entry: not entry.leads):
        if entry.table is not None:
            found.setdefault(entry.table, []).append(entry)
    return found


def as_read() -> list[Metric]:
    """All metrics in the order in which people read them: table by table, and then what is in none."""
    in_tables = [entry for metrics in tables().values() for entry in metrics]
    return [*in_tables, *(entry for entry in _metrics.values() if entry.table is None)]


def in_report() -> list[Metric]:
    """The columns of the report's table of every metric."""
    return [entry for entry in as_read() if entry.in_report or entry.table is not None]


def in_demo() -> list[Metric]:
    """The columns of the demo's table."""
    return [entry for entry in as_read() if entry.in_demo]


def tested() -> list[Metric]:
    """The metrics on which rivals are compared with GHOST, in the order of significance.json."""
    return [entry for entry in _metrics.values() if entry.tested]


def evaluate(scores: OpenSetScores, metrics: Sequence[Metric] | None = None) -> Measured:
    """Every metric under its name in EVAL/metrics.json.

    Parameters
    ----------
    scores : OpenSetScores
    metrics : sequence of Metric, optional
        Default: all that are registered. A process that registered more than its workers sends them its own.

    Returns
    -------
    Measured
        Before its own fields the value of each metric, None if it is not defined.
    """
    measured = {entry.field: entry.measure(scores) for entry in (registered() if metrics is None else metrics)}
    others: Measured = {
        "knowns": len(scores.known),
        "unknowns": len(scores.unknown),
        "undefined": {field: reason for field, (value, reason) in measured.items() if value is None},
    }
    return cast(Measured, {field: value for field, (value, _) in measured.items()} | others)
