"""Room on the cluster: what its nodes have, and waiting for nodes that are still to join.

One rule for every autoscaler, of virtual machines or of KubeRay: what waits for a place is the demand. Actors that
reserve what the job needs are started and wait; when they run, there is room. They are removed with the job, even if it
is killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ghost_ray.cluster.ray_interfaces import alive_nodes
from ghost_ray.errors import JobFailed
from ghost_ray.progress import say

Node = dict[str, float]  # resources: CPU, GPU, memory in bytes, and whatever else it offers
_REPORT_SECONDS = 60.0


def cluster_cpus() -> int:
    """CPUs of the connected cluster, at least 1."""
    return max(1, int(sum(node["CPU"] for node in alive_nodes())))


def places(nodes: Sequence[Mapping[str, float]], bundle: Mapping[str, float]) -> int:
    """How often ``bundle`` fits on the nodes, each time on one of them."""
    return sum(int(min(node.get(name, 0) / amount for name, amount in bundle.items()) + 1e-9) for node in nodes)


class _Placeholder:
    """Reserves what an actor of the job will reserve."""

    def started(self) -> None:
        pass


def wait_for_room(job: str, what: str, bundle: Mapping[str, float], count: int, seconds: float) -> list[Node]:
    """The nodes of the cluster, once ``bundle`` fits on them ``count`` times.

    Parameters
    ----------
    job, what : str
        The waiting job, and what it needs, as in "3 actors with 1 GPU each".
    bundle : mapping
        Resources that are needed together: CPU, GPU.
    seconds : float
        How long to wait for nodes.

    Raises
    ------
    JobFailed
        If there is no room by then.
    """
    if places(nodes := alive_nodes(), bundle) >= count:
        return nodes
    import ray

    start = time.monotonic()
    have = ", ".join(f"{sum(node.get(name, 0) for node in nodes):g} {name}s" for name in sorted(bundle))
    say(f"{job}: waiting for {what}; the cluster has {have}")
    waiting: Any = ray.remote(num_cpus=bundle.get("CPU", 0), num_gpus=bundle.get("GPU", 0))(_Placeholder)
    actors = [waiting.remote() for _ in range(count)]
    starts = [actor.started.remote() for actor in actors]
    try:
        while True:
            left = start + seconds - time.monotonic()
            ready, missing = ray.wait(starts, num_returns=count, timeout=max(0.0, min(_REPORT_SECONDS, left)))
            waited = time.monotonic() - start
            if not missing:
                break
            state = f"{len(ready)} of {count} could start in {waited:.0f} s; Ray reports {reported_demand()}"
            if waited >= seconds:
                raise JobFailed(
                    f"waited {seconds:.0f} s for {what} without success: {state} — see `ray status`; "
                    "`wait_for_nodes` sets how long to wait"
                )
            say(f"{job}: waiting for {what}; {state}")
    finally:
        for actor in actors:
            ray.kill(actor)
    say(f"{job}: room for {what} after {time.monotonic() - start:.0f} s")
    return alive_nodes()


def reported_demand() -> str:
    """What Ray's own ``ray status`` lists as demand, in one line."""
    import ray

    command = [sys.executable, "-m", "ray.scripts.scripts", "status"]
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True).stdout
        found = re.search(r"(?:Pending )?Demands:\n(.*?)(?:\n\n|\Z)", said, re.DOTALL)
        if found:
            return "; ".join(line.strip() for line in found[1].splitlines() if line.strip()) or "no demand"
    return "nothing that can be read"
