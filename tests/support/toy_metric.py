"""A metric as its author adds it: one file, one entry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ghost_ray.metrics import Metric, OpenSetScores, register, unregister


def gap(scores: OpenSetScores) -> float | None:
    """Median of the knowns' scores less that of the unknowns', over the spread of both; None if there is none."""
    spread = np.ptp(np.concatenate([scores.known, scores.unknown]))
    if not 0 < spread < np.inf:
        return None
    return float((np.median(scores.known) - np.median(scores.unknown)) / spread)


TOY = Metric(
    "toy_gap",
    "Toy gap",
    "median of the knowns less that of the unknowns, over the spread of all scores",
    gap,
    better="high",
    undefined="the scores do not spread",
    table="A table of toys",
    in_demo=True,
    tested=True,
)


@contextmanager
def added() -> Iterator[Metric]:
    """The metric, for a while."""
    register(TOY)
    try:
        yield TOY
    finally:
        unregister(TOY.field)
