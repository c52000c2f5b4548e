"""normality.parquet, written block by block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.files import join, resolve
from ghost_ray.jobs.audit.class_tests import RangeTests

NORMALITY = "normality.parquet"
SCHEMA = pa.schema(
    [
        pa.field("class", pa.int32(), nullable=False),
        pa.field("dimension", pa.int32(), nullable=False),
        pa.field("n", pa.int32(), nullable=False),
        pa.field("W", pa.float64(), nullable=False),
        pa.field("p", pa.float64(), nullable=False),
        pa.field("p_holm", pa.float64(), nullable=False),
        pa.field("rejected", pa.bool_(), nullable=False),
        pa.field("degenerate", pa.bool_(), nullable=False),
    ]
)


class NormalityTable:
    """One row per class and dimension, in that order; degenerate cells hold W = p = p_holm = 1."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer

    @classmethod
    @contextlib.contextmanager
    def create(cls, folder: str) -> Iterator[NormalityTable]:
        filesystem, path = resolve(join(folder, NORMALITY))
        with pq.ParquetWriter(
            path,
            SCHEMA,
            filesystem=filesystem,
            compression="zstd",
            use_dictionary=["class", "dimension", "n", "p_holm"],  # W and p hardly repeat
        ) as writer:
            yield cls(writer)

    def write(self, tests: RangeTests, adjusted: np.ndarray, rejected: np.ndarray) -> None:
        """Append the tests of some classes, with Holm's answer for each cell [C, D]."""
        count, dimensions = tests.W.shape
        columns = [
            np.repeat(tests.classes, dimensions),
            np.tile(np.arange(dimensions, dtype=np.int32), count),
            np.repeat(tests.n.astype(np.int32), dimensions),
            tests.W.reshape(-1),
            tests.p.reshape(-1),
            adjusted.reshape(-1),
            rejected.reshape(-1),
            tests.degenerate.reshape(-1),
        ]
        self._writer.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], schema=SCHEMA))
