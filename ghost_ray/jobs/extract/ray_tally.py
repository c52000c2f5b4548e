"""The tally on a cluster: one small actor adds up, and the driver polls it.

Its counts are Ray metrics as well. It may die with its node: the result does not depend on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ghost_ray.cluster.ray_interfaces import counter, other_working_nodes
from ghost_ray.jobs.extract.losses import Device, Losses
from ghost_ray.jobs.extract.tally import Counts, Reporter, Tally, Watch, showing


class MeteredTally(Tally):
    """The actor: a tally whose numbers are Ray metrics."""

    def __init__(self, limit: float, losses: Losses, portions: int, store: str) -> None:
        super().__init__(limit, losses, portions)
        # Several extractions may run on one cluster.
        which = {"job": ray.get_runtime_context().get_job_id(), "store": store}
        self._images = counter("ghost_ray_extract_images", "Images embedded or failed", *which)
        self._failures = counter("ghost_ray_extract_failures", "Images that failed", "stage", *which)
        self._seconds = counter("ghost_ray_extract_seconds", "Seconds spent", "stage", *which)
        for each in (self._images, self._failures, self._seconds):
            each.set_default_tags(which)

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


class RayWatch(Watch):
    """Watches the nodes of the cluster, and the files of the round."""

    def __init__(self, written: Callable[[], int]) -> None:
        self._written, self._start, self._known = written, written(), _nodes()
        self.end: Callable[[str], None] = lambda why: None  # ends the round, while there is one

    def lost(self) -> list[str]:
        now = _nodes()
        lost = [name for node, name in self._known.items() if node not in now]
        self._known = now
        return lost

    def written(self) -> int:
        return self._written() - self._start

    def stalled(self, why: str) -> None:
        self.end(why)


def _nodes() -> dict[str, str]:
    return {node.id: node.name for node in other_working_nodes()}


@contextlib.contextmanager
def tallying(
    limit: float, total: int | None, portions: int, watch: Watch, spare: int = 0, store: str = ""
) -> Iterator[tuple[Reporter, Callable[[], Counts]]]:
    """Start the actor and show its counts until the block ends; ``spare`` actors may be without a device.

    ``store`` is the label of its metrics. Otherwise as ``tally.tallying_here``.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor: Any = (
        ray.remote(MeteredTally)
        .options(num_cpus=0, max_restarts=-1, scheduling_strategy=here)
        .remote(limit, Losses(None, spare), portions, store)
    )

    latest = Counts()

    def counts() -> Counts:
        nonlocal latest
        with contextlib.suppress(ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
            latest = ray.get(actor.counts.remote(), timeout=10)
        return latest

    try:
        with showing(counts, total, portions, watch):
            yield RemoteReporter(actor), counts
    finally:
        ray.kill(actor)
