"""``ghost_ray.open_store``: a store as arrays, or batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ghost_ray.rows import Head, Ints, Singles
from ghost_ray.store import Store


class Batch(NamedTuple):
    """Some rows of a store, in its order."""

    features: Singles  # [n, D]
    labels: Ints  # [n], −1 = unknown
    logits: npt.NDArray[Any]  # [n, K]: as stored, or of the features and the head
    predictions: Ints  # [n]
    keys: npt.NDArray[np.object_]  # [n]


@dataclass(frozen=True)
class OpenStore:
    """A store made by ``extract`` or ``import``; its rows are read on demand.

    >>> store = ghost_ray.open_store("stores/train")             # doctest: +SKIP
    >>> model = ghost_ray.fit(*store.arrays())                   # doctest: +SKIP
    """

    store: Store

    def __len__(self) -> int:
        return self.store.rows

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and dimensions."""
        return self.store.rows, self.store.dimensions

    @property
    def classes(self) -> int:
        return self.store.classes

    @property
    def class_names(self) -> list[str] | None:
        return self.store.manifest.class_names

    @property
    def head(self) -> tuple[Singles, Singles] | None:
        """Weight [K, D] and bias [K] of the last layer; None if it is not known."""
        head = self.store.head()
        return None if head is None else (head.weight, head.bias)

    def batches(self) -> Iterator[Batch]:
        """The rows, some megabytes at a time."""
        head = self.store.head()
        for groups in self.store.row_groups():
            for rows, key in self.store.keyed_batches(groups):
                logits = rows.logits if rows.has_logits else _of(head, rows.embedding)
                yield Batch(rows.embedding, rows.label, logits, rows.pred, key.to_numpy(zero_copy_only=False))

    def arrays(self) -> tuple[Singles, Ints, npt.NDArray[Any]]:
        """All of it: features [N, D], labels [N] and logits [N, K], as `ghost_ray.fit` takes them."""
        parts = list(self.batches())
        return (
            np.concatenate([part.features for part in parts]),
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.logits for part in parts]),
        )

    def __repr__(self) -> str:
        return f"OpenStore({self.store.uri!r}: {self.store.rows:,} rows of {self.store.manifest.network.describe()})"


def open_store(uri: str) -> OpenStore:
    """Open a store, local or on an object store.

    Raises
    ------
    InputError
        If there is no store, or it is broken.
    """
    return OpenStore(Store.open(str(uri)))


def _of(head: Head | None, features: Singles) -> npt.NDArray[Any]:
    assert head is not None, "a store without logits has a head"
    return head.logits(features)
