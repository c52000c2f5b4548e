"""Exact nearest-neighbour search in a bank of training rows."""

from __future__ import annotations

import threading
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ghost_ray.compiled import compiled, read_only
from ghost_ray.rows import Floats, Singles

_BUILDING = threading.Lock()
SPARE = 8  # candidates beyond k: float32 may misplace neighbours that are nearly tied


class Bank:
    """Rows to search by inner product or Euclidean distance.

    faiss finds the candidates in float32; their distances are recomputed from differences in float64, so that a result
    does not depend on the shape of the shard or of the batch, and small distances are not lost in the cancellation of
    ‖a‖² − 2⟨a,b⟩ + ‖b‖². The index is built where it is used and not sent between processes.

    Parameters
    ----------
    rows : ndarray [N, D] float32
    metric : {"l2", "inner"}
    """

    def __init__(self, rows: Singles, metric: Literal["l2", "inner"]) -> None:
        self.rows = np.ascontiguousarray(rows, np.float32)
        self.metric = metric
        self._index: Any = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_index": None}

    def index(self) -> Any:
        """The faiss index over the rows."""
        with _BUILDING:
            if self._index is None:
                import faiss

                flat = faiss.IndexFlatL2 if self.metric == "l2" else faiss.IndexFlatIP
                index = flat(self.rows.shape[1])
                index.add(self.rows)
                self._index = index
        return self._index

    def search(self, queries: Singles, k: int) -> Floats:
        """The k smallest distances, or the k largest inner products, best first [B, k].

        A bank of fewer than k rows fills up with +inf or −inf.
        """
        worst = np.inf if self.metric == "l2" else -np.inf
        found = np.full((len(queries), k), worst)
        candidates = min(k + SPARE, len(self.rows))
        if candidates == 0 or len(queries) == 0:
            return found
        queries = np.ascontiguousarray(queries, np.float32)
        _, ids = self.index().search(queries, candidates)
        exact = np.empty(ids.shape)
        if self.metric == "l2":
            _distances(read_only(self.rows), read_only(queries), read_only(ids), exact)
            exact.sort(axis=1)
        else:
            inner_products(read_only(self.rows), read_only(queries), read_only(ids), exact)
            exact = -np.sort(-exact, axis=1)
        kept = min(k, candidates)
        found[:, :kept] = exact[:, :kept]
        return found


@compiled(reassociate=True)
def _distances(rows: Singles, queries: Singles, ids: npt.NDArray[np.int64], found: Floats) -> None:
    for b in range(len(queries)):
        query = queries[b]
        for j in range(ids.shape[1]):
            row, total = rows[ids[b, j]], 0.0
            for d in range(len(query)):
                difference = np.float64(row[d]) - np.float64(query[d])
                total += difference * difference
            found[b, j] = np.sqrt(total)


@compiled(reassociate=True)
def inner_products(rows: Singles, queries: Singles, ids: npt.NDArray[np.int64], found: Floats) -> None:
    """Products in float64 of each query with the rows that ``ids`` [B, k] names for it."""
    for b in range(len(queries)):
        query = queries[b]
        for j in range(ids.shape[1]):
            row, total = rows[ids[b, j]], 0.0
            for d in range(len(query)):
                total += np.float64(row[d]) * np.float64(query[d])
            found[b, j] = total


def merge_topk(a: Floats, b: Floats) -> Floats:
    """The k smallest of two ascending lists per row [B, k]."""
    return np.sort(np.concatenate([a, b], axis=1), axis=1)[:, : a.shape[1]]
