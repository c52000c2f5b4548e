"""Rows of a data set under one network as arrays, and the network's linear head.

A `Rows` holds what a store holds of some images (label, prediction, embedding, perhaps logits), without the keys.
Derived values (energy, which rows are finite) are computed on first use and then cached, so that methods that share a
batch share the work, and unused values cost nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.integer[Any]]
Identities = npt.NDArray[np.uint64]
T = TypeVar("T")

ROWS_IN_CACHE = 256  # rows of a thousand float64 that stay in a core's second-level cache
_ROWS_OF_A_HEAD = 1024  # rows of the head that are gathered at a time, one per sample
_NEGLIGIBLE = -700.0  # of an exponent: e^−700 is 1e-304


@dataclass(frozen=True, eq=False)
class Head:
    """The network's last linear layer: logits = embedding · weightᵀ + bias."""

    weight: Singles  # [K, D]
    bias: Singles  # [K]

    def __post_init__(self) -> None:
        if self.weight.ndim != 2 or self.bias.shape != self.weight.shape[:1]:
            raise ValueError(f"head: weight must be [K, D] and bias [K], got {self.weight.shape} and {self.bias.shape}")

    def sha256(self) -> str:
        """Digest of the numbers, whatever file they came in."""
        parts = [np.ascontiguousarray(part, np.float32).tobytes() for part in (self.weight, self.bias)]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def logits(self, embedding: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Logits [n, K] of embeddings [n, D]; float32, or float64 where float32 would overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            single = embedding.astype(np.float32, copy=False) @ self.weight.T + self.bias
        if np.isfinite(single).all():
            return single
        return embedding.astype(np.float64) @ self.weight.T.astype(np.float64) + self.bias

    def logit_of(self, embedding: npt.NDArray[Any], index: Ints) -> Floats:
        """The logit of one class per row [n], summed in float64: 1/K of the work of all logits."""
        logit = np.empty(len(embedding))
        for part in chunks(len(embedding), _ROWS_OF_A_HEAD):
            k = index[part]
            logit[part] = np.einsum("bd,bd->b", embedding[part], self.weight[k], dtype=np.float64) + self.bias[k]
        return logit


class _computed_once(Generic[T]):  # noqa: N801  # used as a decorator, like functools.cached_property
    """A property that is computed on first use.

    `functools.cached_property` of Python 3.11 holds one lock for all instances: threads with separate batches would
    wait for each other.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


class Rows:
    """Rows of a data set under one network; not changed once made.

    Parameters
    ----------
    label : array of shape [n], integer
        −1 where the class is unknown.
    pred : array of shape [n], integer
        Argmax of the network's own logits.
    embedding : array of shape [n, D], float32
    logits : array of shape [n, K], optional
        As the network gave them. Without them, methods that need logits raise a ValueError.
    row_id : array of shape [n], uint64, or a function that gives it, optional
        A stable identity of each row (a hash of its key). Random samples are drawn by it, so that they do not depend
        on how the rows were split. Without it, such samples raise a ValueError. A function is called when it is needed.
    start : int, default=0
        Position of the first row in the part of the store that was read.
    """

    def __init__(
        self,
        label: Ints,
        pred: Ints,
        embedding: Singles,
        logits: npt.NDArray[Any] | None = None,
        row_id: Identities | Callable[[], Identities] | None = None,
        start: int = 0,
    ) -> None:
        given = {"pred": pred, "embedding": embedding, "logits": logits}
        if not callable(row_id):
            given["row_id"] = row_id
        for name, values in given.items():
            if values is not None and len(values) != len(label):
                raise ValueError(f"rows: {name} has {len(values)} rows, label has {len(label)}")
        self.label, self.pred, self.embedding, self.start = label, pred, embedding, start
        self._logits, self._row_id = logits, row_id

    def __len__(self) -> int:
        return len(self.label)

    @property
    def has_logits(self) -> bool:
        return self._logits is not None

    @property
    def logits(self) -> npt.NDArray[Any]:
        """The network's logits [n, K]."""
        if self._logits is None:
            raise ValueError("these rows have no logits")
        return self._logits

    @_computed_once
    def row_id(self) -> Identities:
        """A stable identity of each row [n]."""
        if self._row_id is None:
            raise ValueError("these rows have no identities")
        return self._row_id() if callable(self._row_id) else self._row_id

    def take(self, chosen: npt.NDArray[Any]) -> Rows:
        """The rows chosen by an index or a mask; the rows themselves where a mask chooses all."""
        if chosen.dtype == np.bool_ and chosen.all():
            return self
        return Rows(
            label=self.label[chosen],
            pred=self.pred[chosen],
            embedding=self.embedding[chosen],
            logits=None if self._logits is None else self._logits[chosen],
            row_id=None if self._row_id is None else lambda: self.row_id[chosen],
        )

    @_computed_once
    def correct(self) -> npt.NDArray[np.bool_]:
        """Rows whose prediction is their label [n]."""
        return np.equal(self.pred, self.label)

    @_computed_once
    def finite(self) -> npt.NDArray[np.bool_]:
        """Rows without a NaN or an infinity in their embedding and, where there are any, their logits [n]."""
        finite = np.asarray(np.isfinite(self.embedding).all(axis=1))
        return finite if self._logits is None else finite & np.isfinite(self._logits).all(axis=1)

    @_computed_once
    def energy(self) -> Floats:
        """logsumexp of the logits [n]."""
        return logsumexp(self.logits)

    def top_logit(self, head: Head | None = None) -> Floats:
        """The logit of each row's predicted class [n]; rows without logits take it from the head."""
        if self._logits is None and head is not None:
            return head.logit_of(self.embedding, self.pred)
        return self.logits[np.arange(len(self)), self.pred].astype(np.float64)


def chunks(rows: int, size: int = ROWS_IN_CACHE) -> Iterator[slice]:
    """Slices that cover ``range(rows)``."""
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def logsumexp(logits: npt.NDArray[Any], temperature: float = 1.0) -> Floats:
    """log Σ_k exp(logits_k / T) of each row [n] in float64, by the largest logit and without overflow.

    Several times faster on large arrays than scipy's, which makes full copies and looks for signs and infinities.
    """
    result = np.empty(len(logits))
    for part in chunks(len(logits)):
        scaled = logits[part].astype(np.float64)
        scaled /= temperature
        top = scaled.max(axis=1)
        scaled -= top[:, None]
        # Smaller terms add nothing to the largest, which is 1, and an exponential that underflows is seven times
        # slower.
        np.maximum(scaled, _NEGLIGIBLE, out=scaled)
        np.exp(scaled, out=scaled)
        result[part] = top + np.log(scaled.sum(axis=1))
    return result
