"""How many embedding actors there are and what every task reserves, from what the cluster has."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ghost_ray.backbone import ensure_bf16
from ghost_ray.cluster import map_ordered
from ghost_ray.cluster.ray_interfaces import alive_nodes
from ghost_ray.cluster.scaling import Node, NoRoom, largest_cluster, places, wait_for_places
from ghost_ray.config import NetworkConfig
from ghost_ray.errors import InputError
from ghost_ray.jobs.extract.extract_plan import Demand

_CPU_ACTORS_SHARE = 0.4  # of all CPUs: the actors' reservation must leave room for reading and writing
_DECODE_CPUS = 0.97  # of a core, which is left the rest for writing
_WORTH_SECONDS = 10.0  # of work, below which a second actor takes longer to start than it saves
_PROCESS_BYTES = 512 << 20  # of an actor before it holds a network
_COPIES = 2  # of the weights: those loaded and those being read, or the intermediate results of a batch


@dataclass(frozen=True)
class Pool:
    """The embedding actors and the tasks beside them; CPUs, GPUs and memory are Ray's logical ones."""

    min_actors: int
    max_actors: int
    actor_cpus: float
    actor_gpus: float
    threads: int  # of torch in an actor without a GPU
    decode_cpus: float
    write_cpus: float = 0.01  # next to none: where every core decodes, a block must still be written
    actor_memory: int = 0  # bytes; 0 reserves none

    @property
    def writers(self) -> int:
        """Blocks written at a time. An actor takes seconds for a block and a writer a fraction of one."""
        return max(2, self.max_actors // 4)

    def without(self, gpus: int) -> Pool:
        """The same pool where so many GPUs are not to be used."""
        actors = math.ceil(gpus / self.actor_gpus) if gpus else 0
        fewer = (max(1, count - actors) for count in (self.min_actors, self.max_actors))
        return replace(self, **dict(zip(("min_actors", "max_actors"), fewer, strict=True)))


def plan_pool(config: NetworkConfig, demand: Demand, images: int, rows: int, *, may_grow: bool) -> Pool:
    """Size the pool for the connected cluster, and for what it may become.

    Parameters
    ----------
    images, rows : int
        The number of images, and the size of a unit of work; more actors than units would be idle.
    may_grow : bool
        Whether nodes may still join, as in an autoscaling cluster: then the job waits for the autoscaler before it
        refuses a pool that does not fit.
    """
    now = alive_nodes()
    largest = (largest_cluster() if may_grow else None) or now
    blocks = max(1, -(-images // rows))
    gpus = config.gpus_per_actor
    if gpus is None:
        gpus = 1.0 if any(node["GPU"] > 0 for node in largest) else 0.0
    wanted = _limits(config.actors)
    if config.precision == "fp16" and not gpus:
        raise InputError("precision", "fp16", "is for GPUs, and the actors have none", "bf16 or fp32")
    if gpus:
        most = places(largest, {"GPU": gpus})
        low, high = (max(1, min(count, blocks)) for count in wanted or (most, most))
        _wait_for_gpus(gpus, low if wanted else 1, high, may_grow=may_grow)
        if wanted is None and largest is now:
            most = places(alive_nodes(), {"GPU": gpus})  # nodes that joined unexpectedly
            low = high = max(1, min(most, blocks))
        return Pool(low, high, 0, gpus, 1, _DECODE_CPUS)
    if not any(node["CPU"] for node in now):
        now = _wait_for_cpus(may_grow=may_grow)
        largest = largest if len(largest) > len(now) else now
    if config.precision == "bf16":
        # On a worker, whose CPU may be another than the driver's. The actors try it too, but they cannot refuse it
        # as cleanly: Ray has restarted them several times by then.
        list(map_ordered(_try_bf16, range(1)))
    return _cpu_pool(now, largest, demand, images, blocks, wanted)


def _cpu_pool(
    now: list[Node], largest: list[Node], demand: Demand, images: int, blocks: int, wanted: tuple[int, int] | None
) -> Pool:
    """One actor per CPU, fewer if memory or work is short; an explicit number is used as it is.

    If the cluster may grow, the pool starts with as many as fit now and grows to as many as will fit then.
    """
    cpus = sum(node["CPU"] for node in largest)
    memory = _PROCESS_BYTES + _COPIES * demand.bytes
    reserved = 0
    if wanted is None:
        each = {"CPU": 1.0, "memory": float(memory)}
        fitting = places(now, each)
        reserved = memory if fitting else 0  # where not even one fits, one is tried
        wanted = (1, 1) if images * demand.seconds < _WORTH_SECONDS else (fitting, places(largest, each))
    low, high = (max(1, min(count, blocks)) for count in wanted)
    own = min(cpus / high, max(node["CPU"] for node in largest))  # an actor is on one node
    share = math.floor(1000 * _CPU_ACTORS_SHARE * own) / 1000
    return Pool(low, high, max(0.001, share), 0, max(1, int(own)), 0.5, actor_memory=reserved)


def _try_bf16(_: int) -> None:
    ensure_bf16()


def _limits(actors: str | None) -> tuple[int, int] | None:
    if actors is None:
        return None
    low, _, high = actors.partition(":")
    return int(low), int(high or low)


def _wait_for_gpus(gpus: float, actors: int, hoped: int, *, may_grow: bool) -> None:
    """Return once ``actors`` fit; ``hoped`` of them are requested."""
    each = f"{gpus:g} GPU{'s' if gpus > 1 else ''}"
    what = f"{actors} actors with {each} each" if actors > 1 else f"an actor with {each}"
    try:
        wait_for_places("extract", what, {"GPU": gpus}, actors, hoped, may_grow=may_grow)
    except NoRoom as error:
        field, value = ("actors", str(actors)) if error.places else ("gpus_per_actor", f"{gpus:g}")
        hint = "see `ray status`; `gpus_per_actor=0` runs on CPUs"
        raise InputError(field, value, f"does not fit: {error}", hint) from None


def _wait_for_cpus(*, may_grow: bool) -> list[Node]:
    try:
        return wait_for_places("extract", "an actor on a CPU", {"CPU": 1.0}, 1, 1, may_grow=may_grow)
    except NoRoom as error:
        raise InputError("gpus_per_actor", "0", f"does not fit: {error}", "see `ray status`") from None
