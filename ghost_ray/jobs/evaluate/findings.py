"""What an evaluation finds, as its JSON files hold it."""

from __future__ import annotations

from typing import TypedDict

from ghost_ray.metrics import Measured
from ghost_ray.significance import Comparison


class PairResult(Measured):
    """One method on one unknown set. Every metric stands here too, under its field: `Metric.read` finds it."""

    method: str
    unknown: str
    rival: bool  # compared with GHOST, as its scorer says; false for GHOST and its variants


class GroupResult(TypedDict):
    """The mean of one method over the unknown sets of a group; every averaged metric stands here too."""

    method: str
    group: str
    sets: list[str]


class Evaluation(TypedDict):
    """metrics.json."""

    network: str
    closed_set_accuracy: float
    knowns: int
    classes: int
    dimensions: int
    methods: list[str]
    unknowns: dict[str, int]  # rows of each unknown set
    negative_top_logits: dict[str, int]  # rows of each set whose largest logit is below zero
    results: list[PairResult]
    groups: list[GroupResult]
    notes: list[str]


class EvaluateResult(Evaluation):
    """What ``evaluate`` returns."""

    evaluation: str


class PairedTest(Comparison):
    """A method against GHOST on one metric and one unknown set."""

    unknown: str


class DrawnValues(TypedDict):
    """One method on one metric and one unknown set, draw by draw; None where the metric is not defined."""

    unknown: str
    method: str
    metric: str
    mean: float | None
    std: float | None  # with J − 1
    values: list[float | None]


class Significance(TypedDict):
    """significance.json."""

    reference: str
    draws: int
    draw_size: int
    drawn: dict[str, int]  # rows per draw of each set
    notes: list[str]
    seed: int
    correction: str
    alpha: float
    tests: list[PairedTest]
    values: list[DrawnValues]


class ExampleSample(TypedDict):
    """A known or an unknown of the example's class."""

    key: str
    set: str
    logit: float
    s: float
    gamma: float
    z: list[float]  # of the dimensions shown


# example.json: one class, a known of it and an unknown taken for it, in the dimensions shown.
Example = TypedDict(
    "Example",
    {
        "class": int,
        "name": str,
        "dimensions": list[int],
        "mean": list[float],
        "std": list[float],
        "known": ExampleSample,
        "unknown": ExampleSample,
    },
)
