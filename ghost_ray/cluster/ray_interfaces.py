"""The only module that uses Ray's unstable interfaces: beta, developer and private ones.

Everything else in this package uses names that Ray calls public and stable; a test reads Ray's own annotations and
checks every other module. Each function names the interface it uses and why no stable one is enough. When a new Ray
changes one of them, only this file must change.

Ray is imported inside the functions: ``ghost-ray --help`` must not wait for it, nor a decoding worker for Ray Data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ghost_ray.config.limits import ACTOR_STARTS

# ---- the cluster


def alive_nodes() -> list[dict[str, float]]:
    """Resources of each node that is alive: CPU, GPU and memory in bytes, besides whatever else it offers.

    ``ray.nodes`` (developer): there is no stable way to ask what a cluster consists of.
    """
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [{"CPU": 0.0, "GPU": 0.0, "memory": math.inf, **resources} for resources in alive]


@dataclass(frozen=True)
class NodeName:
    """A node, by Ray's id for it and as people know it."""

    id: str
    name: str


def other_working_nodes() -> list[NodeName]:
    """Every node but the driver's own that can run something; ``ray.nodes`` (developer), as in :func:`alive_nodes`."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    return [
        NodeName(node["NodeID"], f"{node['NodeManagerAddress']} ({node['NodeManagerHostname']}, {node['NodeID'][:8]}…)")
        for node in ray.nodes()
        if node["Alive"] and node["NodeID"] != here and {"CPU", "GPU"} & node["Resources"].keys()
    ]


# ---- processes beside Ray's


def pickled(value: object) -> bytes:
    """A value serialized as Ray does it for a worker, for a process that is not a Ray worker.

    ``ray.cloudpickle.dumps`` (not annotated): plain pickle refuses functions of modules that cannot be imported.
    """
    from ray import cloudpickle

    data: bytes = cloudpickle.dumps(value)
    return data


# ---- metrics


def counter(name: str, text: str, *tags: str) -> Any:
    """A metric that only grows, on the cluster's metrics page.

    ``ray.util.metrics.Counter`` (developer): the only way to have numbers of a job beside Ray's own on one page.
    """
    from ray.util.metrics import Counter

    return Counter(name, text, tag_keys=tags)


def set_gauge(name: str, text: str, value: float, **tags: str) -> None:
    """A metric with the value it was last set to; ``Gauge`` (developer), as in :func:`counter`."""
    from ray.util.metrics import Gauge

    Gauge(name, text, tag_keys=tuple(tags)).set(value, tags=tags)


# ---- Ray Data: a stream of blocks

_RESERVED = 0.1  # of the memory for blocks
_ONE_ROW = 1  # bytes of a block of Ray Data: less than any row has, so that a row is sent as soon as it is there


@contextlib.contextmanager
def streaming(ahead_bytes: int) -> Iterator[None]:
    """Ray Data's settings for a stream of blocks, one row each; the caller's own come back afterwards.

    ``DataContext`` (developer) is where Ray Data is configured, and its ``execution_options`` bound what is decoded
    ahead.
    """
    from ray.data import DataContext

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about settings that nobody made
        context = DataContext.get_current().copy()
    context.raise_original_map_exception = True  # otherwise only the text of a stage's exception arrives
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.target_max_block_size = _ONE_ROW
    context.execution_options.resource_limits = context.execution_options.resource_limits.copy(
        object_store_memory=ahead_bytes
    )
    # By default Ray Data adds actors only when the queue is nearly twice the concurrent calls. Ours get exactly as many
    # as they run.
    context.autoscaling_config = dataclasses.replace(
        context.autoscaling_config, actor_pool_util_upscaling_threshold=1.0
    )
    # By itself Ray Data ends the stream with the first actor that died, or was never started, before it was ready.
    context.max_consecutive_actor_init_deaths = ACTOR_STARTS
    # By itself Ray Data keeps half of the memory apart for each stage to have its share; decoding needs it most.
    context.op_resource_reservation_ratio = _RESERVED
    logger = logging.getLogger("ray.data")  # it logs the traceback of what it raises as well
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with DataContext.current(context), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
