"""Exact nearest-neighbour search in a bank of training rows."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ghost_ray.scorers._common import Floats, chunks

SPARE = 8  # candidates beyond k: float32 may misplace neighbours that are nearly tied
ROWS_REFINED = 16  # queries whose candidates are gathered at a time


class Bank:
    """Rows to search by inner product or Euclidean distance.

    faiss finds the candidates in float32; their distances are taken anew from differences in float64 arithmetic, so
    that a result does not depend on the shape of the shard or of the batch, and small distances are not lost in the
    cancellation of ‖a‖² − 2⟨a,b⟩ + ‖b‖². The index is built where it is used and not sent between processes.

    Parameters
    ----------
    rows : ndarray [N, D] float32
    metric : {"l2", "inner"}
    """

    def __init__(self, rows: npt.NDArray[np.float32], metric: Literal["l2", "inner"]) -> None:
        self.rows = np.ascontiguousarray(rows, np.float32)
        self.metric = metric
        self._index: Any = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_index": None}

    def index(self) -> Any:
        """The faiss index over the rows."""
        if self._index is None:
            import faiss

            flat = faiss.IndexFlatL2 if self.metric == "l2" else faiss.IndexFlatIP
            self._index = flat(self.rows.shape[1])
            self._index.add(self.rows)
        return self._index

    def search(self, queries: npt.NDArray[np.float32], k: int) -> Floats:
        """The k smallest distances, or the k largest inner products, best first [B, k].

        A bank of fewer than k rows fills up with +inf or −inf.
        """
        worst = np.inf if self.metric == "l2" else -np.inf
        found = np.full((len(queries), k), worst)
        candidates = min(k + SPARE, len(self.rows))
        if candidates == 0 or len(queries) == 0:
            return found
        _, ids = self.index().search(np.ascontiguousarray(queries, np.float32), candidates)
        kept = min(k, candidates)
        for part in chunks(len(queries), ROWS_REFINED):
            found[part, :kept] = self._refine(queries[part], ids[part])[:, :kept]
        return found

    def _refine(self, queries: npt.NDArray[np.float32], ids: npt.NDArray[np.int64]) -> Floats:
        near = self.rows[np.sort(ids, axis=1)]
        if self.metric == "l2":
            near -= queries[:, None, :]
            distance: Floats = np.sqrt(np.einsum("bkd,bkd->bk", near, near).astype(np.float64))
            return np.sort(distance, axis=1)
        product: Floats = np.einsum("bkd,bd->bk", near, queries).astype(np.float64)
        return -np.sort(-product, axis=1)


def merge_topk(a: Floats, b: Floats) -> Floats:
    """The k smallest of two ascending lists a row [B, k]."""
    return np.sort(np.concatenate([a, b], axis=1), axis=1)[:, : a.shape[1]]
