"""How many embedding actors there are and what every task reserves, from what the cluster has."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from ghost_ray.config import NetworkConfig
from ghost_ray.errors import InputError
from ghost_ray.extract.plan import Demand
from ghost_ray.progress import say

_CPU_ACTORS_SHARE = 0.4  # of all CPUs: the actors' reservation must leave room for reading and writing
_WORTH_SECONDS = 10.0  # of work, below which a second actor takes longer to start than it saves
_PROCESS_BYTES = 512 << 20  # of an actor before it holds a network
_COPIES = 2  # of the weights: those loaded and those being read, or what a batch becomes on its way
_WAIT_SECONDS = 45.0
_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Pool:
    """The embedding actors and the tasks beside them; CPUs, GPUs and memory are Ray's logical ones."""

    min_actors: int
    max_actors: int
    actor_cpus: float
    actor_gpus: float
    threads: int  # of torch in an actor without a GPU
    decode_cpus: float
    write_cpus: float = 0.1
    actor_memory: int = 0  # bytes; 0 reserves none

    @property
    def writers(self) -> int:
        """Blocks written at a time. An actor takes seconds for a block and a writer a fraction of one."""
        return max(2, self.max_actors // 4)


def plan_pool(config: NetworkConfig, demand: Demand, images: int, rows: int, *, may_grow: bool) -> Pool:
    """Size the pool for the connected cluster.

    Parameters
    ----------
    images, rows : int
        What there is to do, and how much of it is a unit of work; more actors than units would stand idle.
    may_grow : bool
        Whether nodes may still join, as in a cluster that scales itself: then a pool that does not fit is waited
        for, for less than a minute, before it is refused.
    """
    gpus = config.gpus_per_actor
    nodes = _nodes()
    blocks = max(1, -(-images // rows))
    if gpus is None:
        gpus = 1.0 if any(node["GPU"] > 0 for node in nodes) else 0.0
    wanted = _limits(config.actors)
    if config.precision == "fp16" and not gpus:
        raise InputError("--precision", "fp16", "is for GPUs, and the actors have none", "bf16 or fp32")
    if gpus:
        nodes = _wait_for(gpus, wanted[0] if wanted else 1, may_grow)
        room = _room(nodes, gpus)
        low, high = (max(1, min(count, blocks)) for count in wanted or (room, room))
        return Pool(low, high, 0, gpus, 1, 1)
    return _cpu_pool(nodes, demand, images, blocks, wanted)


def _cpu_pool(
    nodes: list[dict[str, float]], demand: Demand, images: int, blocks: int, wanted: tuple[int, int] | None
) -> Pool:
    """An actor a CPU, fewer where memory or work is short; what is asked for by number is given."""
    cpus = sum(node["CPU"] for node in nodes)
    memory = _PROCESS_BYTES + _COPIES * demand.bytes
    reserved = 0
    if wanted is None:
        fitting = sum(int(min(node["CPU"], node["memory"] / memory)) for node in nodes)
        reserved = memory if fitting else 0  # where not even one fits, one is tried
        wanted = (1, 1) if images * demand.seconds < _WORTH_SECONDS else (fitting, fitting)
    low, high = (max(1, min(count, blocks)) for count in wanted)
    own = min(cpus / high, max(node["CPU"] for node in nodes))  # an actor is on one node
    share = math.floor(1000 * _CPU_ACTORS_SHARE * own) / 1000
    return Pool(low, high, max(0.001, share), 0, max(1, int(own)), 0.5, actor_memory=reserved)


def _limits(actors: str | None) -> tuple[int, int] | None:
    if actors is None:
        return None
    low, _, high = actors.partition(":")
    return int(low), int(high or low)


def _nodes() -> list[dict[str, float]]:
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [{"CPU": 0.0, "GPU": 0.0, "memory": math.inf, **node} for node in alive]


def _room(nodes: list[dict[str, float]], gpus: float) -> int:
    """Actors that fit: one on a fraction of a GPU, or on whole GPUs of one node."""
    return sum(int(node["GPU"] / gpus + 1e-9) for node in nodes)


def _wait_for(gpus: float, actors: int, may_grow: bool) -> list[dict[str, float]]:
    """The nodes, once ``actors`` of them fit."""
    deadline = time.monotonic() + (_WAIT_SECONDS if may_grow else 0)
    told = False
    while True:
        nodes = _nodes()
        room = _room(nodes, gpus)
        if room >= actors:
            return nodes
        have = ", ".join(f"{node['GPU']:g}" for node in nodes) or "none"
        problem = f"{actors} actors with {gpus:g} GPUs each do not fit: the nodes have {have} GPUs, room for {room}"
        if time.monotonic() >= deadline:
            field = "--gpus-per-actor" if room == 0 else "--actors"
            value = f"{gpus:g}" if room == 0 else actors
            raise InputError(field, value, problem, "see `ray status`; --gpus-per-actor 0 runs on CPUs")
        if not told:
            say(f"extract: {problem}; waiting {_WAIT_SECONDS:.0f} s for nodes to join")
            _ask_autoscaler(gpus, actors)
            told = True
        time.sleep(_POLL_SECONDS)


def _ask_autoscaler(gpus: float, actors: int) -> None:
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=[{"GPU": gpus}] * actors)
