"""The only module that uses Ray's unstable interfaces: beta, developer and private ones.

Everything else in this package uses names that Ray calls public and stable; a test reads Ray's own annotations and
checks every other module. Each function names the interface it uses and why no stable one is enough. When a new Ray
changes one of them, only this file must change.

Ray is imported inside the functions: ``ghost-ray --help`` must not wait for it, nor a decoding worker for Ray Data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ghost_ray.config.policies import ACTOR_STARTS

# ---- the cluster

_ANSWER_SECONDS = 10.0
_TOKEN_MODE = "RAY_AUTH_MODE"
_HEAD = "node:__internal_head__"  # a resource that the head node alone has


def alive_nodes() -> list[dict[str, float]]:
    """Resources of each node that is alive: CPU, GPU and memory in bytes, besides whatever else it offers.

    ``ray.nodes`` (developer): there is no stable way to ask what a cluster consists of.
    """
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [{"CPU": 0.0, "GPU": 0.0, "memory": math.inf, **resources} for resources in alive]


def wants_token(address: str) -> bool | None:
    """Whether a cluster refuses drivers without a valid token; None if it does not answer.

    Ray's own client does not distinguish such a cluster from one that is not there. The answer to any request does,
    here to ``CheckAlive`` of Ray's internal service.
    """
    import grpc

    try:
        with grpc.insecure_channel(address) as channel:
            channel.unary_unary("/ray.rpc.NodeInfoGcsService/CheckAlive")(b"", timeout=_ANSWER_SECONDS)
    except grpc.RpcError as error:
        return True if error.code() == grpc.StatusCode.UNAUTHENTICATED else None
    return False


def token_mode() -> bool:
    """Whether this process shows a token to others and asks them for one.

    ``RAY_AUTH_MODE`` says so. Ray also sets it when it starts on this machine, for all child processes.
    """
    return os.environ.get(_TOKEN_MODE, "").lower() == "token"


@contextlib.contextmanager
def without_token() -> Iterator[None]:
    """Leave token mode for the block.

    ``Config.initialize`` of ``ray._raylet`` (private): Ray reads ``RAY_AUTH_MODE`` once, and calls this itself when it
    changes the mode.
    """
    from ray._raylet import Config  # type: ignore[attr-defined]  # compiled

    before = os.environ[_TOKEN_MODE]
    os.environ[_TOKEN_MODE] = "disabled"
    Config.initialize("")
    try:
        yield
    finally:
        os.environ[_TOKEN_MODE] = before
        Config.initialize("")


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


@dataclass(frozen=True)
class NodeType:
    """A kind of worker that the autoscaler may start."""

    resources: dict[str, float]
    most: int


@dataclass(frozen=True)
class AutoscalingConfig:
    """What the autoscaler may do."""

    worker_types: tuple[NodeType, ...]
    max_workers: int


def autoscaling_config() -> AutoscalingConfig | None:
    """What the autoscaler may do; None if there is none, or where it does not run beside the head.

    Ray does not publish its node types. They are in the file given to ``ray start --autoscaling-config``; the command
    line of the autoscaler's process names it, and it is read on the head. On Kubernetes the autoscaler has its own
    container, and nothing is found. ``ray.nodes`` (developer) shows which node is the head.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    context = ray.get_runtime_context()
    heads = [node["NodeID"] for node in ray.nodes() if node["Alive"] and _HEAD in node["Resources"]]
    if not heads:
        return None
    if heads[0] == context.get_node_id():
        return _config_of_autoscaler(context.gcs_address)
    there = NodeAffinitySchedulingStrategy(heads[0], soft=False)
    task = ray.remote(num_cpus=0)(_config_of_autoscaler).options(scheduling_strategy=there)
    found: AutoscalingConfig | None = ray.get(task.remote(context.gcs_address), timeout=60)
    return found


def _config_of_autoscaler(gcs_address: str) -> AutoscalingConfig | None:
    import yaml

    for process in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError, yaml.YAMLError, KeyError, TypeError, ValueError):
            with open(process, encoding="utf-8", errors="replace") as handle:
                words = handle.read().split("\0")
            file = next((word.partition("=")[2] for word in words if word.startswith("--autoscaling-config=")), "")
            if not file or f"--gcs-address={gcs_address}" not in words:
                continue
            with open(os.path.expanduser(file), encoding="utf-8") as handle:
                return _node_types(yaml.safe_load(handle))
    return None


def _node_types(config: dict[str, Any]) -> AutoscalingConfig:
    kinds = {name: kind for name, kind in config["available_node_types"].items() if name != config["head_node_type"]}
    limit = config.get("max_workers")
    most = {name: int(kind.get("max_workers", limit or 0)) for name, kind in kinds.items()}
    workers = [NodeType({k: float(v) for k, v in kinds[name]["resources"].items()}, most[name]) for name in kinds]
    return AutoscalingConfig(tuple(workers), sum(most.values()) if limit is None else int(limit))


@dataclass(frozen=True)
class AutoscalerReport:
    """What the autoscaler said when it last looked."""

    version: str  # another one whenever it looks
    bringing: bool  # nodes are on their way, or it failed to start some and tries again


def autoscaler_report() -> AutoscalerReport | None:
    """The autoscaler's last report; None if there is none.

    ``is_autoscaler_v2`` and ``get_cluster_status`` (not annotated) for the newer autoscaler, and for the older the
    report in ``_internal_kv_get`` (private) under ``DEBUG_AUTOSCALING_STATUS``: what ``ray status`` reads.
    There is no stable way to ask whether nodes are on their way. The key is in ``ray_constants`` (private).
    """
    import ray
    from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
    from ray.autoscaler.v2.sdk import get_cluster_status
    from ray.autoscaler.v2.utils import is_autoscaler_v2
    from ray.experimental.internal_kv import _internal_kv_get

    if is_autoscaler_v2():
        status = get_cluster_status(ray.get_runtime_context().gcs_address)
        coming = [*status.pending_launches, *status.pending_nodes, *status.failed_launches]
        return AutoscalerReport(str(status.stats.autoscaler_version), bool(coming))
    text = _internal_kv_get(DEBUG_AUTOSCALING_STATUS)
    if not text:
        return None
    status = json.loads(text)
    report = status.get("autoscaler_report") or {}
    trouble = (report.get("node_availability_summary") or {}).get("node_availabilities")
    return AutoscalerReport(
        str(status.get("time")), bool(report.get("pending_launches") or report.get("pending_nodes") or trouble)
    )


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


def block_source(tasks: Sequence[Callable[[], Iterable[pa.Table]]]) -> Any:
    """A source with a read task for each function, which gives its blocks one after the other.

    ``ReadTask`` and ``BlockMetadata`` (developer) are what a ``Datasource`` is made of; there is no stable way to
    produce blocks in custom tasks.
    """
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockMetadata

    # The size of a task's output is not known before it runs.
    metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)

    class Blocks(Datasource):
        def get_name(self) -> str:
            return "Items"

        def estimate_inmemory_data_size(self) -> None:
            return None

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ReadTask]:
            return [ReadTask(task, metadata) for task in tasks]

    return Blocks()  # type: ignore[no-untyped-call]  # Ray's constructor


def block_sink(write: Callable[[pa.Table], None]) -> Any:
    """A sink that hands each block to ``write``.

    ``Datasink`` (developer): ``write_parquet``, the stable one, does not let callers split and name files.
    """
    from ray.data import Datasink

    class Sink(Datasink[None]):
        def write(self, blocks: Iterable[Any], ctx: Any) -> None:
            for block in blocks:
                write(block)

    return Sink()


@contextlib.contextmanager
def streaming(block_bytes: int, ahead_bytes: int) -> Iterator[None]:
    """Ray Data's settings for the block, and the caller's again afterwards.

    ``DataContext`` (developer) is where Ray Data is configured, and ``_set_current`` (private) the only way to give
    the caller's settings back. ``ExecutionResources`` (not annotated) bounds what is decoded ahead.
    """
    from ray.data import DataContext, ExecutionResources

    before = DataContext.get_current()
    context = before.copy()
    context.raise_original_map_exception = True  # otherwise only the text of a stage's exception arrives
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.target_max_block_size = block_bytes
    context.execution_options.resource_limits = ExecutionResources(object_store_memory=ahead_bytes)
    # By default Ray Data adds actors only when the queue is nearly twice the concurrent calls. Ours get exactly as many
    # as they run.
    context.autoscaling_config = dataclasses.replace(
        context.autoscaling_config, actor_pool_util_upscaling_threshold=1.0
    )
    # By itself Ray Data ends the stream with the first actor that died, or was never started, before it was ready.
    context.max_consecutive_actor_init_deaths = ACTOR_STARTS
    # By itself Ray Data keeps half of the memory apart for each stage to have its share; decoding needs it most.
    context.op_resource_reservation_ratio = _RESERVED
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # it logs the traceback of what it raises as well
    DataContext._set_current(context)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        DataContext._set_current(before)
