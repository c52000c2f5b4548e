"""How many embedding actors there are and what every task reserves, from what the cluster has and the work is worth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from ghost_ray.cluster.nodes import Node, places, wait_for_room
from ghost_ray.cluster.ray_interfaces import alive_nodes
from ghost_ray.cluster.session import cluster_address
from ghost_ray.config import ExtractConfig
from ghost_ray.errors import InputError

_CPU_ACTORS_SHARE = 0.4  # of all CPUs: the actors' reservation must leave room for reading and decoding
_DECODE_CPUS = 0.97  # of a core beside GPU actors, which are left the rest
# Minimum work for another actor. It takes seconds to start, and a node that is started for it minutes.
_WORTH_SECONDS = 10.0  # on a CPU, of computing
_WORTH_IMAGES = 2048  # on a GPU, whose speed is not known before it runs
_PROCESS_BYTES = 768 << 20  # of an actor besides its weights: torch, timm and Ray
_COPIES = 2  # of the weights: those loaded and those being read, or the intermediate results of a batch


class NetworkDemand(Protocol):
    """What a network needs on CPUs."""

    @property
    def bytes(self) -> int:
        """Of its weights."""

    @property
    def seconds_an_image(self) -> float:
        """Of one core."""


@dataclass(frozen=True)
class Pool:
    """The embedding actors and the tasks beside them; CPUs, GPUs and memory are Ray's logical ones."""

    min_actors: int
    max_actors: int
    actor_cpus: float
    actor_gpus: float
    threads: int  # of torch in an actor without a GPU
    decode_cpus: float
    actor_memory: int = 0  # bytes; 0 reserves none


def plan_pool(config: ExtractConfig, network: NetworkDemand, images: int, rows: int) -> Pool:
    """Size the pool for the connected cluster; it starts with what fits now and grows to what the work is worth.

    Parameters
    ----------
    images, rows : int
        The number of images, and of images in a block; more actors than blocks would be idle.

    Raises
    ------
    InputError
        If a cluster that is named has no GPU and nobody said whether to wait for one, or if this machine, which cannot
        grow, has too few.
    JobFailed
        If the nodes that are needed have not joined within ``wait_for_nodes``.
    """
    nodes, named = alive_nodes(), bool(cluster_address(config))
    blocks = max(1, -(-images // rows))
    gpus = config.gpus_per_actor
    if gpus is None:
        gpus = 1.0 if any(node["GPU"] > 0 for node in nodes) else 0.0
        if named and not gpus:
            raise InputError(
                "gpus_per_actor",
                "",
                "the cluster has no GPU now",
                "`gpus_per_actor=1` waits for nodes with GPUs, `gpus_per_actor=0` uses CPUs",
            )
    asked = _limits(config.actors)
    if config.precision == "fp16" and not gpus:
        raise InputError("precision", "fp16", "is for GPUs, and the actors have none", "bf16 or fp32")
    if gpus:
        low, high = _gpu_actors(config, gpus, asked, nodes, max(1, images // _WORTH_IMAGES), named=named)
        return Pool(min(low, blocks), min(high, blocks), 0, gpus, 1, _DECODE_CPUS)
    if not any(node["CPU"] for node in nodes):  # a head that only plans, and no worker yet
        nodes = wait_for_room("extract", "an actor on a CPU", {"CPU": 1.0}, 1, config.wait_for_nodes)
    return _cpu_pool(nodes, network, images, blocks, asked, named=named)


def _gpu_actors(
    config: ExtractConfig, gpus: float, asked: tuple[int, int] | None, nodes: list[Node], worth: int, *, named: bool
) -> tuple[int, int]:
    """The smallest and the largest number of actors, once there is room for the smallest."""
    bundle = {"GPU": gpus}
    least = asked[0] if asked else 1
    if not named and places(nodes, bundle) < least:
        field, value = ("actors", config.actors) if asked and places(nodes, bundle) else ("gpus_per_actor", f"{gpus:g}")
        have = sum(node["GPU"] for node in nodes)
        problem = f"does not fit: this machine has {have:g} GPUs"
        raise InputError(field, value, problem, "`gpus_per_actor=0` runs on CPUs")
    each = f"{gpus:g} GPU{'s' if gpus > 1 else ''}"
    what = f"{least} actors with {each} each" if least > 1 else f"an actor with {each}"
    fitting = places(wait_for_room("extract", what, bundle, least, config.wait_for_nodes), bundle)
    if asked:
        return asked
    return min(fitting, worth), worth if named else min(fitting, worth)


def _cpu_pool(
    nodes: list[Node], network: NetworkDemand, images: int, blocks: int, asked: tuple[int, int] | None, *, named: bool
) -> Pool:
    """One actor per CPU, fewer if memory or work is short; an explicit number is used as it is."""
    cpus = sum(node["CPU"] for node in nodes)
    memory = _PROCESS_BYTES + _COPIES * network.bytes
    reserved = 0
    if asked is None:
        fitting = places(nodes, {"CPU": 1.0, "memory": float(memory)})
        reserved = memory if fitting else 0  # where not even one fits, one is tried
        worth = max(1, int(images * network.seconds_an_image / _WORTH_SECONDS))
        asked = (min(fitting, worth), worth if named else min(fitting, worth))
    low, high = (max(1, min(count, blocks)) for count in asked)
    own = min(cpus / low, max(node["CPU"] for node in nodes))  # an actor is on one node
    share = math.floor(1000 * _CPU_ACTORS_SHARE * own) / 1000
    return Pool(low, high, max(0.001, share), 0, max(1, int(own)), 0.5, actor_memory=reserved)


def _limits(actors: str | None) -> tuple[int, int] | None:
    if actors is None:
        return None
    low, _, high = actors.partition(":")
    return int(low), int(high or low)
