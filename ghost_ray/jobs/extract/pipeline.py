"""The stages as one Ray Data stream.

A block that is written is finished: a run that resumes reads from the files which images they hold. Ray Data's own
checkpoints would add nothing, and cost eight requests to an object store instead of one.
"""

from __future__ import annotations

import secrets
from functools import partial

import ray
from ray.data import ActorPoolStrategy

from ghost_ray.cluster import cluster_cpus
from ghost_ray.cluster.ray_interfaces import block_sink, block_source, streaming
from ghost_ray.config.policies import ACTOR_RESTARTS, TASK_RETRIES
from ghost_ray.jobs.extract.decode_stage import Decode
from ghost_ray.jobs.extract.embed_stage import CALLS, Embed
from ghost_ray.jobs.extract.extract_plan import Plan
from ghost_ray.jobs.extract.list_stage import Todo
from ghost_ray.jobs.extract.list_task import list_blocks
from ghost_ray.jobs.extract.network_process import Task
from ghost_ray.jobs.extract.packing import on_blocks, unpack
from ghost_ray.jobs.extract.pool import Pool
from ghost_ray.jobs.extract.tally import Reporter
from ghost_ray.jobs.extract.write_stage import WriteBlock, block_schema

_BLOCKS_AN_ACTOR = 2 * CALLS  # decoded: those it has, and as many again that wait for it
# A listing task mostly waits for the decoding tasks; it must not take a core from them.
_LIST_CPUS = 0.001
_LISTERS = 2  # at least; each is one more process to start before the first block
_ONE_ROW = 1  # bytes of a block: less than any row has, so that every row is a block of its own
_BLOCKS_A_CPU = 2  # one that is decoded and one that has just been


def bytes_ahead(block_bytes: int, actors: int, cpus: float) -> int:
    """Bytes of decoded but unwritten data in Ray's object store: enough for every core and every actor."""
    return max(512 << 20, int(_BLOCKS_AN_ACTOR * actors + _BLOCKS_A_CPU * cpus) * block_bytes)


def stream(plan: Plan, todo: list[Todo], rows: int, pool: Pool, batch_size: int, staging: str, to: Reporter) -> None:
    """Embed what is left of some portions into block files below ``staging``; returns when all of it is written."""
    ahead = bytes_ahead(rows * plan.preprocessing.bytes, pool.max_actors, cluster_cpus() / pool.decode_cpus)
    task = Task(plan.recipe, plan.preprocessing.second_half(), batch_size, pool.threads, pool.actor_gpus)
    lister = ray.put(plan.lister(staging))  # once, and not with every task
    write = WriteBlock(block_schema(plan.network.dimensions), to, staging, secrets.token_hex(4))
    with streaming(_ONE_ROW, ahead):
        dataset = ray.data.read_datasource(
            block_source([partial(list_blocks, lister, each, rows, to) for each in todo]),
            override_num_blocks=len(todo),
            ray_remote_args={"num_cpus": _LIST_CPUS, "max_retries": TASK_RETRIES},
            concurrency=max(_LISTERS, cluster_cpus()),
        )
        dataset = dataset.map_batches(
            on_blocks(Decode)(plan.source.reader, plan.preprocessing, to),
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=pool.decode_cpus,
            max_retries=TASK_RETRIES,
        )
        dataset = dataset.map_batches(
            on_blocks(Embed),
            fn_constructor_args=(task, plan.network.dimensions, to),
            batch_size=1,  # a row, which is a block; the batches of the network are cut from it
            batch_format="pyarrow",
            compute=ActorPoolStrategy(
                min_size=pool.min_actors,
                max_size=pool.max_actors,
                # As many calls as blocks: an actor that has lost its device knows all blocks that it holds.
                max_tasks_in_flight_per_actor=CALLS,
                max_concurrent_calls_per_actor=CALLS,
                enable_true_multi_threading=True,
            ),
            max_restarts=ACTOR_RESTARTS,
            max_task_retries=ACTOR_RESTARTS,
            num_cpus=pool.actor_cpus,
            num_gpus=pool.actor_gpus or None,
            memory=pool.actor_memory or None,
        )
        dataset.write_datasink(
            block_sink(lambda packed: write(unpack(packed)) if packed.num_rows else None),
            ray_remote_args={"num_cpus": pool.write_cpus, "max_retries": TASK_RETRIES},
            concurrency=pool.writers,
        )
