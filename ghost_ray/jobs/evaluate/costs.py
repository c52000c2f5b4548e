"""What each method costs: seconds in its own code, and bytes of what it keeps and writes.

Reading the rows is shared by all methods and is nobody's. Seconds are added up over the workers. They differ from run
to run, so they stand in the manifest, beside the time of making, and not in metrics.json.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from pydantic import BaseModel, ConfigDict

from ghost_ray.scorers import Scorer

Seconds = dict[str, float]  # by method


class Cost(BaseModel):
    """Of one method."""

    model_config = ConfigDict(frozen=True, extra="allow")

    fit_seconds: float
    fit_bytes: int  # of what was fitted, which everybody who scores has to hold
    score_seconds: float
    score_bytes: int  # of the files of scores


@dataclass
class Clock:
    """Seconds spent for each method."""

    seconds: Seconds = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self, method: str) -> Iterator[None]:
        """The block works for a method."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[method] = self.seconds.get(method, 0.0) + time.perf_counter() - start

    def add(self, other: Seconds) -> None:
        """Take in what another clock measured."""
        for method, seconds in other.items():
            self.seconds[method] = self.seconds.get(method, 0.0) + seconds


def fitted_bytes(scorer: Scorer) -> int:
    """Bytes of the arrays that were fitted; the network's head was not, and is the same for all."""
    return array_bytes(scorer.fitted_values())


def array_bytes(value: object) -> int:
    """Bytes of the arrays in a value: an array, a container of them, or an object with them as attributes."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, dict):
        return sum(array_bytes(item) for item in value.values())
    if isinstance(value, list | tuple):
        return sum(array_bytes(item) for item in value)
    return sum(array_bytes(item) for item in vars(value).values()) if hasattr(value, "__dict__") else 0


def costs(fit: Clock, score: Clock, kept: dict[str, int], written: dict[str, int]) -> dict[str, Cost]:
    """The cost of every method; ``kept`` and ``written`` are the bytes of its fit and of its scores."""
    return {
        method: Cost(
            fit_seconds=round(fit.seconds.get(method, 0.0), 6),
            fit_bytes=kept[method],
            score_seconds=round(score.seconds.get(method, 0.0), 6),
            score_bytes=size,
        )
        for method, size in written.items()
    }
