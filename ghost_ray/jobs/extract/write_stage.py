"""Block files: the results of a block of images, before they are part of a store."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ghost_ray.config.policies import TIMED_STAGES, Stage
from ghost_ray.files import reaching
from ghost_ray.jobs.extract.work_files import BlockName, block_uri, whole_file
from ghost_ray.store import row_schema

BLOCK_STAGES = TIMED_STAGES[:-1]  # those that a block passed before it is written: columns of its rows
WRITE_SECONDS = "write_seconds"  # known when all rows are written: in the file's metadata


def block_schema(dimensions: int) -> pa.Schema:
    """A store's row, and beside it what became of the image and its share of the block's time."""
    fields = [pa.field("portion", pa.int32()), pa.field("place", pa.int64())]  # which image of the source it is
    fields += [pa.field("failed", pa.bool_()), pa.field("stage", pa.string()), pa.field("error", pa.string())]
    fields.append(pa.field("batch_size", pa.int32()))  # of the forward passes, after what did not fit was halved
    fields += [pa.field(f"{name}_seconds", pa.float32()) for name in BLOCK_STAGES]
    return pa.schema([*row_schema(dimensions), *fields])


def constant_column(value: float, rows: int) -> pa.Array:
    """``value`` for every row, float32."""
    return pa.array(np.full(rows, value, np.float32))


@dataclass(frozen=True)
class WriteBlock:
    """Writes a block to its Parquet file and tells the tally what is in it. A repeated write gives the same file."""

    schema: pa.Schema
    tally: Any
    staging: str
    round: str

    def __call__(self, block: pa.Table) -> None:
        if not block.num_rows:  # returned by an actor that could not compute it
            return
        start = time.perf_counter()
        table = block.select(self.schema.names).cast(self.schema)
        unread = pc.sum(pc.equal(table["stage"], Stage.READ)).as_py() or 0
        portion, place = table["portion"][0].as_py(), table["place"][0].as_py()
        name = BlockName(portion, place, table.num_rows, unread, self.round)
        with (
            reaching(self.staging, "out"),
            whole_file(block_uri(self.staging, name)) as file,
            pq.ParquetWriter(file, table.schema, compression="none", use_dictionary=False) as writer,
        ):
            writer.write_table(table)
            seconds = time.perf_counter() - start
            writer.add_key_value_metadata({WRITE_SECONDS: str(seconds)})
        self.tally.report(table, seconds)
