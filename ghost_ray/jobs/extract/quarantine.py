"""Keeps broken GPUs out of later rounds: an idle actor reserves them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ghost_ray.jobs.extract.losses import Device
from ghost_ray.progress import say

_PATIENCE = 30.0  # seconds for the actors of the round before to leave


class _Guard:
    """Reserves a GPU."""

    def gpus(self) -> list[str]:
        import ray

        return list(ray.get_runtime_context().get_accelerator_ids().get("GPU", []))


class Quarantine:
    """The GPUs that were given up in this job; freed when the block ends."""

    def __init__(self) -> None:
        self._guards: list[Any] = []

    def __enter__(self) -> Quarantine:
        return self

    def __exit__(self, *_: object) -> None:
        _dismiss(self._guards)

    @property
    def gpus(self) -> int:
        """How many are guarded."""
        return len(self._guards)

    def add(self, devices: Iterable[Device]) -> None:
        """Reserve each of the GPUs; one that cannot be reserved in time may be used again."""
        for device in devices:
            for gpu in device.gpus:
                say(f"extract: GPU {gpu} of node {device.node[:12]} is no longer used")
                self._reserve(device.node, gpu)

    def _reserve(self, node: str, gpu: str) -> None:
        """Ray chooses which GPU it gives: reserve one after the other until the right one is among them."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        guard = ray.remote(num_cpus=0, num_gpus=1)(_Guard)
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        others: list[Any] = []
        try:
            while True:
                others.append(guard.options(scheduling_strategy=there).remote())
                if gpu in ray.get(others[-1].gpus.remote(), timeout=_PATIENCE):
                    self._guards.append(others.pop())
                    return
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
            return
        finally:
            _dismiss(others)


def _dismiss(guards: list[Any]) -> None:
    if not guards:  # as where there is no Ray at all
        return
    import ray

    for guard in guards:
        ray.kill(guard)
