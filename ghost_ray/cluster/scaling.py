"""Room for a job's needs: what a cluster has, how far it can grow, and waiting for nodes.

An autoscaling cluster adds nodes when something waits for them. Here one placement group per needed place waits: the
autoscaler sees all of them at once, and they are removed with the job, even if it is killed. A request to the
autoscaler (``request_resources``) would outlive the job, and so would the nodes it adds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence

from ghost_ray.cluster.ray_interfaces import alive_nodes, autoscaler_report, autoscaling_config
from ghost_ray.config.policies import JOIN_PATIENCE, NODE_PATIENCE
from ghost_ray.errors import JobFailed
from ghost_ray.progress import say

_POLL_SECONDS = 1.0
_TELL_SECONDS = 60.0

Node = dict[str, float]  # resources: CPU, GPU, memory in bytes, and whatever else it offers


class NoRoom(Exception):
    """The resources do not fit and never will; the text says why. ``places`` is how often they would fit."""

    def __init__(self, problem: str, places: int) -> None:
        super().__init__(problem)
        self.places = places


def cluster_cpus() -> int:
    """CPUs of the connected cluster, at least 1."""
    return max(1, int(sum(node["CPU"] for node in alive_nodes())))


def places(nodes: Sequence[Mapping[str, float]], bundle: Mapping[str, float]) -> int:
    """How often ``bundle`` fits on the nodes, each time on one of them."""
    return sum(int(min(node.get(name, 0) / amount for name, amount in bundle.items()) + 1e-9) for node in nodes)


def largest_cluster() -> list[Node] | None:
    """The nodes there would be if every node type were at its limit; None if no limit is known."""
    config = autoscaling_config()
    if config is None:
        return None
    now = alive_nodes()
    limit = config.max_workers - (len(now) - 1)  # the head is not a worker
    more: list[Node] = []
    for kind in config.worker_types:
        running = sum(all(node.get(name) == kind.resources.get(name, 0) for name in ("CPU", "GPU")) for node in now)
        more += [{"CPU": 0.0, "GPU": 0.0, "memory": float("inf"), **kind.resources}] * max(0, kind.most - running)
    more.sort(key=lambda node: (-node["GPU"], -node["CPU"]))
    return now + more[: max(0, limit)]


def wait_for_places(
    job: str, what: str, bundle: Mapping[str, float], least: int, wanted: int, *, may_grow: bool = True
) -> list[Node]:
    """The nodes of the cluster, once ``bundle`` fits on them ``least`` times.

    Parameters
    ----------
    job, what : str
        The waiting job, and what it needs, as in "3 actors with 1 GPU each".
    bundle : mapping
        Resources that are needed together, such as ``{"GPU": 1}``.
    wanted : int
        How many places to ask the autoscaler for.
    may_grow : bool
        Whether nodes may join; if not, a request that does not fit is refused at once.

    Raises
    ------
    NoRoom
        Within a minute, if no node can ever hold it or no node is starting.
    JobFailed
        If the autoscaler did not succeed within `NODE_PATIENCE`.
    """
    nodes = alive_nodes()
    if places(nodes, bundle) >= least:
        return nodes
    lacking = f"{what}: no room on the existing nodes ({_have(nodes, bundle)})"
    largest = largest_cluster() if may_grow else nodes
    if largest is not None and places(largest, bundle) < least:
        at_most = places(largest, bundle)
        limit = f", and with every node type at its limit there is room for only {at_most}" if may_grow else ""
        raise NoRoom(f"{lacking}{limit}", at_most)
    with _asking_for(bundle, max(least, wanted)):
        say(f"{job}: {lacking}; waiting for nodes to join")
        return _wait(job, what, bundle, least, scales=largest is not None)


def _wait(job: str, what: str, bundle: Mapping[str, float], least: int, *, scales: bool) -> list[Node]:
    start = told = time.monotonic()
    first = autoscaler_report()
    while places(nodes := alive_nodes(), bundle) < least:
        now = time.monotonic()
        lacking = f"{what}: no room on the existing nodes ({_have(nodes, bundle)})"
        if not scales and now - start >= JOIN_PATIENCE:
            last = autoscaler_report()
            looked = last is None or first is None or last.version != first.version
            if looked and not (last and last.bringing):
                raise NoRoom(f"{lacking}, and no node is starting", places(nodes, bundle))
        if now - start >= NODE_PATIENCE:
            waited = f"waited {NODE_PATIENCE / 60:.0f} minutes for nodes without success"
            raise JobFailed(f"{waited}; {lacking} — see `ray status`, then run the same command again")
        if now - told >= _TELL_SECONDS:
            say(f"{job}: {lacking}; waiting for nodes to join for {now - start:.0f} s")
            told = now
        time.sleep(_POLL_SECONDS)
    say(f"{job}: room for {what} after {time.monotonic() - start:.0f} s")
    return nodes


def _have(nodes: Sequence[Mapping[str, float]], bundle: Mapping[str, float]) -> str:
    return "; ".join(f"{name}s: {', '.join(f'{node.get(name, 0):g}' for node in nodes)}" for name in sorted(bundle))


@contextlib.contextmanager
def _asking_for(bundle: Mapping[str, float], count: int) -> Iterator[None]:
    """Let ``count`` such bundles wait for a place while the block runs."""
    from ray.util import placement_group, remove_placement_group

    groups = [placement_group([dict(bundle)]) for _ in range(count)]
    try:
        yield
    finally:
        for group in groups:
            remove_placement_group(group)
