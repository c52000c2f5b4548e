"""The tally on a cluster: one small actor adds up, and the driver polls it.

Its counts are Ray metrics as well. It may die with its node: the result does not depend on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ghost_ray.cluster.ray_interfaces import counter
from ghost_ray.jobs.extract.losses import Device, Losses
from ghost_ray.jobs.extract.tally import Counts, Reporter, Tally, showing


class MeteredTally(Tally):
    """The actor: a tally whose numbers are Ray metrics."""

    def __init__(self, limit: float, losses: Losses, portions: int) -> None:
        super().__init__(limit, losses, portions)
        self._images = counter("ghost_ray_extract_images", "Images embedded or failed")
        self._failures = counter("ghost_ray_extract_failures", "Images that failed", "stage")
        self._seconds = counter("ghost_ray_extract_seconds", "Seconds spent", "stage")

    def _count(self, images: int, failed: list[tuple[str, str, str, int]], seconds: dict[str, float]) -> None:
        super()._count(images, failed, seconds)
        if images:
            self._images.inc(images)
        for _, stage, _, lost in failed:
            self._failures.inc(lost, tags={"stage": stage})
        for stage, value in seconds.items():
            if value > 0:
                self._seconds.inc(value, tags={"stage": stage})


class RemoteReporter(Reporter):
    """A worker's end of the actor; travels with the sink and to the embedding actors."""

    def _tell(self, what: str, *news: Any) -> None:
        getattr(self._tally, what).remote(*news)

    def _ask(self, what: str, *news: Any) -> Any:
        try:
            return ray.get(getattr(self._tally, what).remote(*news), timeout=30)
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
            return None

    @property
    def _actor(self) -> str:
        return str(ray.get_runtime_context().get_actor_id())

    @property
    def _device(self) -> Device:
        context = ray.get_runtime_context()
        return Device(context.get_node_id(), tuple(context.get_accelerator_ids().get("GPU", ())))


@contextlib.contextmanager
def tallying(
    limit: float, total: int | None, portions: int, spare: int = 0
) -> Iterator[tuple[Reporter, Callable[[], Counts]]]:
    """Start the actor and show its counts until the block ends; ``spare`` actors may be without a device.

    Otherwise as ``tally.tallying_here``.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor: Any = (
        ray.remote(MeteredTally)
        .options(num_cpus=0, max_restarts=-1, scheduling_strategy=here)
        .remote(limit, Losses(None, spare), portions)
    )

    def counts() -> Counts:
        try:
            now: Counts = ray.get(actor.counts.remote(), timeout=10)
            return now
        except ray.exceptions.RayError:
            return Counts()

    try:
        with showing(counts, total, portions):
            yield RemoteReporter(actor), counts
    finally:
        ray.kill(actor)
