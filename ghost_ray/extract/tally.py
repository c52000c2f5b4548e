"""What the workers report while the job runs: images done, failures, seconds in each stage.

A single small actor adds up; the driver asks it now and then and shows the numbers, and on a cluster they are Ray
metrics as well. It may die with its node: nothing of the result depends on it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ghost_ray.errors import GateFailed
from ghost_ray.progress import progress, say

STAGES = ("read", "decode", "embed", "write")
_POLL_SECONDS = 1.0
_SILENCE_SECONDS = 45.0
_HOPELESS = 100  # failures, below which even a budget overrun by far is no reason to stop early


@dataclass
class Counts:
    """Sums over the blocks reported."""

    images: int = 0
    failures: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    examples: list[tuple[str, str, str]] = field(default_factory=list)  # key, stage, error of the first failures


class Tally:
    """The actor that adds up; ``limit`` failures are too many."""

    def __init__(self, limit: float) -> None:
        from ray.util.metrics import Counter

        self._limit, self._counts, self._blocks = limit, Counts(), set[str]()
        self._images = Counter("ghost_ray_extract_images", "Images embedded or failed")
        self._failures = Counter("ghost_ray_extract_failures", "Images that failed", tag_keys=("stage",))
        self._seconds = Counter("ghost_ray_extract_seconds", "Seconds spent", tag_keys=("stage",))

    def add(self, block: str, images: int, failed: list[tuple[str, str, str]], seconds: dict[str, float]) -> bool:
        """Count a block; False once there are hopelessly many failures. One computed again is counted once."""
        if block not in self._blocks:
            self._blocks.add(block)
            counts = self._counts
            counts.images += images
            counts.failures += len(failed)
            counts.examples += failed[: 3 - len(counts.examples)]
            self._images.inc(images)
            for _, stage, _ in failed:
                self._failures.inc(tags={"stage": stage})
            for stage, value in seconds.items():
                counts.seconds[stage] += value
                if value > 0:
                    self._seconds.inc(value, tags={"stage": stage})
        return not hopeless(self._counts.failures, self._limit)

    def counts(self) -> Counts:
        return self._counts


def hopeless(failures: int, limit: float) -> bool:
    """Whether so many images failed that it is no use to finish, if only to name them all."""
    return failures > max(_HOPELESS, 2 * limit)


class Reporter:
    """A worker's end of the tally; travels with the sink."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def report(self, block: pa.Table, write_seconds: float) -> None:
        """Report a written block; GateFailed where it is no use going on."""
        import ray

        failed = block.filter(block["failed"]).select(["key", "stage", "error"])
        rows = [(row["key"], row["stage"], row["error"]) for row in failed.to_pylist()]
        seconds = {stage: pc.sum(block[f"{stage}_seconds"]).as_py() or 0.0 for stage in STAGES[:3]}
        seconds["write"] = write_seconds
        try:
            name = block["key"][0].as_py()
            go_on = ray.get(self._actor.add.remote(name, block.num_rows, rows, seconds), timeout=30)
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
            return
        if not go_on:
            raise GateFailed("too many images fail")


@contextlib.contextmanager
def tallying(limit: float, total: int) -> Iterator[tuple[Reporter, Any]]:
    """Start the tally and show its counts until the block ends; gives the reporter and a way to ask for the counts."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor: Any = ray.remote(Tally).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote(limit)

    def counts() -> Counts:
        try:
            now: Counts = ray.get(actor.counts.remote(), timeout=10)
            return now
        except ray.exceptions.RayError:
            return Counts()

    stop = threading.Event()
    with progress("extract", total, "images") as shown:
        thread = threading.Thread(target=_show, args=(counts, shown, stop), daemon=True)
        thread.start()
        try:
            yield Reporter(actor), counts
        finally:
            stop.set()
            thread.join(timeout=15)
            ray.kill(actor)


def _show(counts: Any, shown: Any, stop: threading.Event) -> None:
    done, waited = 0, 0.0
    while True:
        last = stop.wait(_POLL_SECONDS)
        now = counts()
        if now.failures:
            shown.note(f"{now.failures:,} failed")
        shown.advance(max(0, now.images - done))
        done = max(done, now.images)
        waited += _POLL_SECONDS
        if not done and waited == _SILENCE_SECONDS:
            say("extract: nothing is done yet; `ray status` shows whether the actors wait for resources in use")
        if last:
            return
