"""The stages in threads of this process, for a few images: faster than starting Ray.

The network has a separate process here too, so that a crash ends only that process.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

from ghost_ray.cluster.session import cluster_address, ray_is_joined
from ghost_ray.config import ExtractConfig
from ghost_ray.jobs.extract.block_cutter import rows_per_block
from ghost_ray.jobs.extract.decode_stage import Decode
from ghost_ray.jobs.extract.embed_stage import Embed
from ghost_ray.jobs.extract.list_stage import Todo, timed
from ghost_ray.jobs.extract.network_client import kept_template
from ghost_ray.jobs.extract.network_process import Task
from ghost_ray.jobs.extract.tally import Reporter
from ghost_ray.jobs.extract.write_stage import WriteBlock, block_schema

if TYPE_CHECKING:  # imports torch
    from ghost_ray.jobs.extract.extract_plan import Plan

# A Ray of this machine takes ten seconds to start and to stop. It pays off only if decoding needs more than threads.
_FEW = 2000  # images


def may_run_here(config: ExtractConfig) -> bool:
    """Whether Ray is not needed: no cluster is named or joined, no actors, and no precision that must be tested."""
    asked = config.actors or config.gpus_per_actor or config.precision != "fp32"
    return not (asked or cluster_address(config) or ray_is_joined())


def runs_here(config: ExtractConfig, plan: Plan) -> bool:
    """Whether the images are so few that a Ray would take longer to start than it saves."""
    return may_run_here(config) and plan.source.seen.complete and plan.images <= _FEW


def stream_here(config: ExtractConfig, plan: Plan, todo: list[Todo], images: int, staging: str, to: Reporter) -> None:
    """Embed what is left of some portions into block files below ``staging``; returns when all of it is written."""
    cpus = config.num_cpus or os.cpu_count() or 1
    rows = rows_per_block(images, config.batch_size, plan.preprocessing.bytes, cpus)
    task = Task(plan.recipe, plan.preprocessing.second_half(), config.batch_size, cpus, _gpus(config))
    dimensions = plan.network.dimensions
    write = WriteBlock(block_schema(dimensions), to, staging, secrets.token_hex(4))
    with contextlib.closing(Embed(task, dimensions, to, kept_template())) as embed:
        for block in _decoded(plan, todo, rows, staging, to, cpus):
            write(embed(block))


def _decoded(plan: Plan, todo: list[Todo], rows: int, staging: str, to: Reporter, cpus: int) -> Iterator[pa.Table]:
    """The blocks in order; a few are decoded while others are embedded."""
    decode, lister = Decode(plan.source.reader, plan.preprocessing), plan.lister(staging)
    pending: deque[Future[pa.Table]] = deque()
    with ThreadPoolExecutor(cpus) as pool:
        for each in todo:
            for block in timed(lister.blocks(each, rows, to)):
                pending.append(pool.submit(decode, block))
                if len(pending) > 2 * cpus:
                    yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _gpus(config: ExtractConfig) -> float:
    """One GPU if there is one, as an actor would reserve it."""
    import torch

    return 1.0 if config.gpus_per_actor is None and torch.cuda.is_available() else 0.0
