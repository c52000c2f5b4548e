"""What a study finds, as results.json holds it."""

from __future__ import annotations

from typing import TypedDict

from ghost_ray.jobs.audit.audit_summary import AuditFigures
from ghost_ray.jobs.evaluate.findings import PairedTest


class NetworkFindings(TypedDict):
    """One network of a study."""

    name: str  # in the study
    model: str  # as its stores name it
    closed_set_accuracy: float
    knowns: int
    classes: int
    dimensions: int
    unknowns: dict[str, int]  # rows of each unknown set
    negative_top_logits: dict[str, int]
    evaluations: dict[
        str, list[list[str]]
    ]  # folder below the network's → [method, unknown set] of each cell taken from it
    audit: AuditFigures
    notes: list[str]


class Cell(TypedDict):
    """A line of results.parquet."""

    network: str
    unknown: str
    method: str
    metric: str
    value: float | None
    std: float | None  # over the draws; None for a metric that is not drawn


class GroupMean(TypedDict):
    """The plain mean over the sets of a group."""

    network: str
    group: str
    method: str
    metric: str
    value: float | None


class NetworkTest(PairedTest):
    """A method against GHOST on one metric, one unknown set and one network, over the draws."""

    network: str


class PooledTest(TypedDict):
    """A method against GHOST on one metric, over several sets and networks at once."""

    network: str | None  # None: all networks
    over: str  # "sets": a pair per network and set; "draws": a pair per network, set and draw
    pairs: int
    method: str
    metric: str
    difference: float | None  # method − GHOST
    t: float | None
    p: float
    p_bonferroni: float
    significant: bool
    note: str


class Beside(TypedDict):
    """A number of the paper beside the study's own."""

    network: str
    unknown: str | None  # None: the network's audit
    method: str | None
    metric: str
    here: float
    paper: float
    difference: float
    rounding: float  # half of the last digit that the paper prints
    source: str
    caveats: list[str]


class Failed(TypedDict):
    """A network that could not be finished."""

    network: str
    reason: str


class Study(TypedDict):
    """results.json."""

    reference: str
    methods: list[str]
    rivals: list[str]  # of these, those compared with GHOST, as metrics.json has it
    unknowns: list[str]
    groups: dict[str, list[str]]
    draws: int
    draw_size: int
    seed: int
    alpha: float
    networks: list[NetworkFindings]
    failed: list[Failed]
    results: list[Cell]
    group_means: list[GroupMean]
    tests: list[NetworkTest]
    pooled: list[PooledTest]
    published: list[Beside]
    notes: list[str]
