"""The cells of an audit: normality.parquet, streamed into matrices over classes × dimensions and into histograms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.errors import one_line
from ghost_ray.files import join, open_input
from ghost_ray.report.discover import Result

FILE = "normality.parquet"
# Includes the usual levels, so that statements about them are exact.
ALPHAS = np.unique([*np.geomspace(1e-4, 0.5, 60), 0.001, 0.01, 0.05, 0.1])
P_EDGES = np.linspace(0.0, 1.0, 21)
# 1 − W: from all but normal to as far from it as W can go, twelve bins per decade.
DEFECT_EDGES = np.geomspace(1e-5, 1.0, 61)
_COLUMNS = ["class", "dimension", "n", "W", "p", "p_holm", "rejected", "degenerate"]
_BATCH = 1 << 18


@dataclass
class Cells:
    """What the page needs of K × D tests.

    Attributes
    ----------
    W : ndarray [K, D] float32
        The statistic, NaN where a cell is degenerate or was not tested.
    rejected : ndarray [K, D] bool
    n : ndarray [K]
        Samples of each class.
    p_counts, defect_counts : ndarray
        Tests in each bin of p (P_EDGES) and of 1 − W (DEFECT_EDGES).
    below, holm_below : ndarray
        Tests whose p, and whose p after Holm's correction, is at most each of ALPHAS.
    """

    W: np.ndarray
    rejected: np.ndarray
    n: np.ndarray
    tests: int
    degenerate: int
    p_counts: np.ndarray
    defect_counts: np.ndarray
    below: np.ndarray
    holm_below: np.ndarray

    @property
    def tested(self) -> np.ndarray:
        """Which cells hold a test, [K, D] bool."""
        tested: np.ndarray = ~np.isnan(self.W)
        return tested

    def class_means(self) -> np.ndarray:
        """Mean W of each class, NaN where nothing was tested, [K]."""
        return _nan_mean(self.W, axis=1)

    def dimension_means(self) -> np.ndarray:
        """Mean W of each dimension, [D]."""
        return _nan_mean(self.W, axis=0)

    def rates(self, axis: int) -> np.ndarray:
        """Share of rejected tests by class (axis 1) or dimension (axis 0), NaN where nothing was tested."""
        counts = self.tested.sum(axis=axis)
        with np.errstate(invalid="ignore"):
            rates: np.ndarray = self.rejected.sum(axis=axis) / np.where(counts == 0, np.nan, counts)
        return rates

    def least_normal_first(self, axis: int) -> np.ndarray:
        """Classes (axis 1) or dimensions (axis 0): the largest share of rejections first, among equals the lowest
        mean W; those without a test last. The audit's summary names the worst in this order too."""
        rate = np.nan_to_num(self.rates(axis), nan=-1.0)
        mean = np.nan_to_num(_nan_mean(self.W, axis=axis), nan=np.inf)
        return np.lexsort((mean, -rate))


def _nan_mean(values: np.ndarray, axis: int) -> np.ndarray:
    counts = (~np.isnan(values)).sum(axis=axis)
    with np.errstate(invalid="ignore"):
        return np.nansum(values, axis=axis, dtype=np.float64) / np.where(counts == 0, np.nan, counts)


def read_cells(result: Result) -> Cells | None:
    """Stream the cells; None, with an entry in the result's problems, if the file is missing or damaged."""
    if FILE not in result.files:
        return None
    try:
        with open_input(join(result.uri, FILE)) as handle:
            file = pq.ParquetFile(handle)
            classes, dimensions = _shape(file)
            return _stream(file, classes, dimensions)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        result.problems.append(f"{FILE} cannot be read: {one_line(error, 120)}")
        return None


def _batches(file: pq.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Columns of the file, a bounded number of rows at a time.

    Asked for all row groups at once, Arrow holds several of them: 400 MB of the tests of 21,841 classes.
    """
    for group in range(file.num_row_groups):
        yield from file.iter_batches(_BATCH, row_groups=[group], columns=columns, use_threads=False)


def _shape(file: pq.ParquetFile) -> tuple[int, int]:
    """K and D from the largest class and dimension in the file."""
    largest = {"class": -1, "dimension": -1}
    for batch in _batches(file, list(largest)):
        for name in largest:
            column = _column(batch, name)
            if len(column):
                if column.min() < 0:
                    raise ValueError(f"{name} {column.min()} is negative")
                largest[name] = max(largest[name], int(column.max()))
    classes, dimensions = largest["class"] + 1, largest["dimension"] + 1
    # A file with ten times more cells than rows is not an audit; refuse it before allocating.
    if classes * dimensions > 10 * max(file.metadata.num_rows, 1000):
        raise ValueError(f"{file.metadata.num_rows:,} rows cannot be {classes:,} classes × {dimensions:,} dimensions")
    if classes * dimensions == 0:
        raise ValueError("has no rows")
    return classes, dimensions


def _stream(file: pq.ParquetFile, classes: int, dimensions: int) -> Cells:
    cells = Cells(
        W=np.full((classes, dimensions), np.nan, np.float32),
        rejected=np.zeros((classes, dimensions), bool),
        n=np.zeros(classes, np.int64),
        tests=0,
        degenerate=0,
        p_counts=np.zeros(len(P_EDGES) - 1, np.int64),
        defect_counts=np.zeros(len(DEFECT_EDGES) - 1, np.int64),
        below=np.zeros(len(ALPHAS), np.int64),
        holm_below=np.zeros(len(ALPHAS), np.int64),
    )
    for batch in _batches(file, _COLUMNS):
        column: dict[str, Any] = {name: _column(batch, name) for name in _COLUMNS}
        cells.n[column["class"]] = column["n"]
        tested = ~column["degenerate"].astype(bool) & np.isfinite(column["W"])
        at = column["class"][tested], column["dimension"][tested]
        W, p, holm = (column[name][tested] for name in ("W", "p", "p_holm"))
        cells.W[at] = W
        cells.rejected[at] = column["rejected"][tested].astype(bool)
        cells.tests += len(W)
        cells.degenerate += int(column["degenerate"].sum())
        cells.p_counts += np.histogram(p, P_EDGES)[0]
        defect = np.clip(1.0 - W.astype(np.float64), DEFECT_EDGES[0], DEFECT_EDGES[-1])
        cells.defect_counts += np.histogram(defect, DEFECT_EDGES)[0]
        cells.below += np.searchsorted(np.sort(p), ALPHAS, side="right")
        cells.holm_below += np.searchsorted(np.sort(holm), ALPHAS, side="right")
    return cells


def _column(batch: pa.RecordBatch, name: str) -> np.ndarray:
    if name not in batch.schema.names:
        raise ValueError(f"has no column {name}")
    values: np.ndarray = batch.column(name).to_numpy(zero_copy_only=False)
    if values.dtype == object:  # booleans or numbers with nulls among them
        return np.array([np.nan if v is None else v for v in values], np.float64)
    return values
