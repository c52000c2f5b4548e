"""From finished blocks to a store: failures apart, rows clustered, the manifest last."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ghost_ray.arrange import arrange
from ghost_ray.config import ExtractConfig
from ghost_ray.extract.blocks import SECONDS, WRITE_SECONDS, block_schema
from ghost_ray.extract.plan import Plan
from ghost_ray.extract.resume import block_files, read_blocks, remove_work
from ghost_ray.files import join, remove_tree
from ghost_ray.manifest import provenance
from ghost_ray.store import StoreManifest, finish_store, row_schema, write_failures, write_head

_FACTS = ["key", "failed", "stage", "error", *(f"{name}_seconds" for name in SECONDS)]


@dataclass(frozen=True)
class Outcome:
    """What became of every image, without the embeddings."""

    failures: pa.Table  # key, stage, error; each key once, sorted
    seconds: dict[str, float]  # spent in each stage, in all runs that the blocks come from


def outcome(plan: Plan, staging: str) -> Outcome:
    """Go through the blocks' small columns."""
    blocks = read_blocks(block_files(staging), _FACTS)
    nothing = block_schema(plan.network.dimensions).empty_table().select(_FACTS)
    facts = pa.concat_tables([nothing, *blocks])
    seconds = {name: float(pc.sum(facts[f"{name}_seconds"]).as_py() or 0) for name in SECONDS}
    seconds["write"] = sum(float(block.schema.metadata[WRITE_SECONDS.encode()]) for block in blocks)
    sound = facts.filter(pc.invert(facts["failed"]))["key"].combine_chunks()
    failed = facts.filter(facts["failed"]).select(["key", "stage", "error"])
    failed = failed.filter(pc.invert(pc.is_in(failed["key"], sound)))
    listed = pa.Table.from_pylist([f._asdict() for f in plan.failures], schema=failed.schema)
    return Outcome(_each_key_once(pa.concat_tables([failed, listed])).sort_by("key"), seconds)


def _each_key_once(table: pa.Table) -> pa.Table:
    keys = table["key"].combine_chunks().dictionary_encode()
    if len(keys.dictionary) == len(keys):
        return table
    _, first = np.unique(keys.indices.to_numpy(), return_index=True)
    return table.take(pa.array(np.sort(first)))


def commit(config: ExtractConfig, plan: Plan, staging: str, result: Outcome) -> None:
    """Write the store beside the blocks it is made of, the manifest last, and then remove the blocks."""
    network = plan.network
    remove_tree(join(staging, "rows"))  # of a commit that was killed
    files = arrange(
        block_files(staging), staging, row_schema(network.dimensions), network.classes, [("failed", "==", False)]
    )
    write_failures(staging, result.failures)
    write_head(staging, *plan.head)
    manifest = StoreManifest(
        **provenance(config),
        network=network,
        data=[plan.data],
        rows=sum(file.rows for file in files),
        layout="clustered",
        files=files,
        class_names=plan.class_names,
        has_head=True,
        failures=result.failures.num_rows,
        seconds={name: round(value, 3) for name, value in result.seconds.items()},
    )
    finish_store(staging, manifest)
    remove_work(staging)
