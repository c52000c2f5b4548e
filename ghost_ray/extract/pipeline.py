"""The stages as one Ray Data stream, checkpointed block by block."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext, ExecutionResources
from ray.data.checkpoint import CheckpointConfig, IdColumnCheckpointManager

from ghost_ray.extract.blocks import BlockSink, block_schema
from ghost_ray.extract.decoding import Decode, ItemBlocks
from ghost_ray.extract.embedding import Embed
from ghost_ray.extract.plan import Plan
from ghost_ray.extract.pool import Pool
from ghost_ray.extract.resume import BLOCKS, CHECKPOINT
from ghost_ray.extract.tally import Reporter
from ghost_ray.files import join, resolve

# A kill loses the block an actor is at and the one being written: together well below 1,000 images.
MAX_BLOCK_ROWS = 384
_BLOCK_BYTES = 32 << 20
_BLOCKS_AN_ACTOR = 4  # decoded ahead of each actor


def rows_per_block(images: int, batch_size: int, image_bytes: int, workers: int) -> int:
    """Whole batches, few enough images to lose little by a kill, and enough blocks to occupy everyone."""
    fits = min(MAX_BLOCK_ROWS, max(1, _BLOCK_BYTES // image_bytes), max(1, images // (4 * workers)))
    return max(1, fits // batch_size) * batch_size


class _NothingToFilter(IdColumnCheckpointManager):
    """Ray Data would filter what is done with actors of one CPU each; the listing was filtered before it came here.

    What remains to be done at the start is removing the blocks whose write never reached its second phase.
    """

    def load_checkpoint(self, data_file_dir: Any = None, data_file_filesystem: Any = None) -> tuple[None, int]:
        return None, 0


def clean_up(staging: str) -> None:
    """Remove the blocks that a killed run had begun to write: Ray Data's own recovery, run by itself."""
    with _context(staging, 0, None) as context:
        settings = context.checkpoint_config
        assert settings is not None
        manager = IdColumnCheckpointManager(checkpoint_config=settings, data_context=context)
        filesystem, path = resolve(join(staging, BLOCKS))
        manager.load_checkpoint(path, filesystem)


def stream(plan: Plan, items: pa.Table, rows: int, pool: Pool, batch_size: int, staging: str, to: Reporter) -> None:
    """Embed ``items`` into block files below ``staging``; returns when every one of them is written."""
    block_bytes = rows * plan.preprocessing.bytes
    filesystem, path = resolve(join(staging, BLOCKS))
    with _context(staging, block_bytes, pool):
        sink = BlockSink(path, filesystem, block_schema(plan.network.dimensions), to)
        source = ItemBlocks(items, rows)
        blocks = -(-items.num_rows // rows)
        dataset = ray.data.read_datasource(source, override_num_blocks=blocks, num_cpus=pool.decode_cpus)
        dataset = dataset.map_batches(
            Decode(plan.reader, plan.preprocessing),
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=pool.decode_cpus,
        )
        dataset = dataset.map_batches(
            Embed,
            fn_constructor_args=(plan.recipe, plan.preprocessing, batch_size, pool.threads, pool.actor_gpus),
            batch_size=rows,  # a block; the batches of the network are cut from it
            batch_format="pyarrow",
            compute=ActorPoolStrategy(min_size=pool.min_actors, max_size=pool.max_actors),
            num_cpus=pool.actor_cpus,
            num_gpus=pool.actor_gpus or None,
            memory=pool.actor_memory or None,
        )
        dataset.write_datasink(sink, ray_remote_args={"num_cpus": pool.write_cpus}, concurrency=pool.writers)


@contextlib.contextmanager
def _context(staging: str, block_bytes: int, pool: Pool | None) -> Iterator[DataContext]:
    """Ray Data's settings for the block, and the caller's again afterwards."""
    filesystem, path = resolve(join(staging, CHECKPOINT))
    before = DataContext.get_current()
    context = before.copy()
    context.checkpoint_config = CheckpointConfig(
        id_column="key",
        checkpoint_path=path,
        override_filesystem=filesystem,
        delete_checkpoint_on_success=False,
        checkpoint_manager_cls=_NothingToFilter,
    )
    context.raise_original_map_exception = True  # wrapped by Ray Data, what a stage raised arrives as text alone
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    if pool is not None:
        # One block in, one block out: a block cut in two would be two commits and two halves of a batch.
        context.target_max_block_size = max(128 << 20, 4 * block_bytes)
        ahead = _BLOCKS_AN_ACTOR * pool.max_actors * block_bytes
        context.execution_options.resource_limits = ExecutionResources(object_store_memory=max(512 << 20, ahead))
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # it logs the traceback of what it raises as well
    DataContext._set_current(context)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield context
    finally:
        DataContext._set_current(before)
