"""A few columns to look at: the least normal ones, and typical ones beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.files import join, resolve
from ghost_ray.jobs.audit.class_tests import RangeTests, Sampling, class_samples
from ghost_ray.store import Store

EXAMPLES = "examples.parquet"
TYPICAL_QUANTILES = (0.2, 0.4, 0.6, 0.8)
_WORST = 8
_MOST_VALUES = 500
SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("class", pa.int32()),
        ("dimension", pa.int32()),
        ("n", pa.int32()),
        ("W", pa.float64()),
        ("p", pa.float64()),
        ("p_holm", pa.float64()),
        ("rejected", pa.bool_()),
        ("mean", pa.float64()),
        ("std", pa.float64()),
        ("values", pa.list_(pa.float32())),
    ]
)


class Examples:
    """Finds the examples while blocks of tests pass by.

    Parameters
    ----------
    dimensions : int
    typical : sequence of float
        The W of the typical examples; the cell nearest to each is taken.
    """

    def __init__(self, dimensions: int, typical: list[float]) -> None:
        # One candidate per dimension, so that the worst are not the same dimension in eight classes.
        self._worst: list[dict[str, Any] | None] = [None] * dimensions
        self._worst_p = np.ones(dimensions)
        self._worst_W = np.ones(dimensions)
        self._targets = typical
        self._typical: list[dict[str, Any] | None] = [None] * len(typical)

    def look_at(self, tests: RangeTests, adjusted: np.ndarray, rejected: np.ndarray) -> None:
        """Consider the cells of a block."""

        def cell(row: int, dimension: int) -> dict[str, Any]:
            at = (row, dimension)
            return {
                "class": int(tests.classes[row]),
                "dimension": int(dimension),
                "n": int(tests.n[row]),
                "W": float(tests.W[at]),
                "p": float(tests.p[at]),
                "p_holm": float(adjusted[at]),
                "rejected": bool(rejected[at]),
            }

        # p says which is least normal whatever n is; where it is 0 for several, W does.
        order = np.lexsort((tests.W, tests.p), axis=0)[0]
        p = np.take_along_axis(tests.p, order[None], axis=0)[0]
        W = np.take_along_axis(tests.W, order[None], axis=0)[0]
        lower_W = np.less(W, self._worst_W)
        better = (p < self._worst_p) | ((p == self._worst_p) & lower_W)
        for dimension in np.flatnonzero(better).tolist():
            self._worst[dimension] = cell(int(order[dimension]), dimension)
        self._worst_p[better], self._worst_W[better] = p[better], W[better]
        if not tests.degenerate.all():
            for i, target in enumerate(self._targets):
                far = np.where(tests.degenerate, np.inf, np.abs(tests.W - target))
                row, dimension = divmod(int(far.argmin()), far.shape[1])
                known = self._typical[i]
                if known is None or far[row, dimension] < abs(known["W"] - target):
                    self._typical[i] = cell(row, dimension)

    def write(self, folder: str, store: Store, sampling: Sampling) -> None:
        """Write examples.parquet, each example with its sorted sample, thinned evenly to at most 500 values."""
        order = np.lexsort((self._worst_W, self._worst_p))[:_WORST]
        chosen = [{"kind": "worst", **cell} for cell in (self._worst[d] for d in order) if cell]
        chosen += [{"kind": "typical", **cell} for cell in self._typical if cell]
        columns: dict[tuple[int, int], np.ndarray] = {}
        for label in {cell["class"] for cell in chosen}:  # each class is read once
            sample = _sample(store, label, sampling)
            dimensions = [cell["dimension"] for cell in chosen if cell["class"] == label]
            columns |= {(label, dimension): np.sort(sample[:, dimension]) for dimension in dimensions}
        rows = [{**cell, **_values(columns[cell["class"], cell["dimension"]])} for cell in chosen]
        filesystem, path = resolve(join(folder, EXAMPLES))
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path, filesystem=filesystem)


def _sample(store: Store, label: int, sampling: Sampling) -> np.ndarray:
    holding = store.class_row_groups(label)
    return next(sample for k, _, sample in class_samples(store, holding, sampling) if k == label)


def _values(values: np.ndarray) -> dict[str, Any]:
    step = np.linspace(0, len(values) - 1, min(len(values), _MOST_VALUES))
    exact = values.astype(np.float64)
    return {
        "mean": float(exact.mean()),
        "std": float(exact.std(ddof=1)),
        "values": values[np.rint(step).astype(int)].tolist(),
    }
