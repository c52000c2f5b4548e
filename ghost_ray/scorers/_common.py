"""Arithmetic shared by several scorers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Array = TypeVar("Array", bound=npt.NDArray[Any])

_NEGLIGIBLE = -700.0  # of an exponent: e^−700 is 1e-304
ROWS_IN_CACHE = 256  # rows of a thousand float64 that stay in a core's second-level cache


def chunks(rows: int, size: int = ROWS_IN_CACHE) -> Iterator[slice]:
    """Slices that cover ``range(rows)``."""
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def logsumexp(logits: npt.NDArray[Any], temperature: float = 1.0) -> Floats:
    """log Σ_k exp(logits_k / T) of each row [B] in float64, by the largest logit and without overflow.

    Several times faster on large arrays than scipy's, which makes full copies and looks for signs and infinities.
    """
    result = np.empty(len(logits))
    for part in chunks(len(logits)):
        scaled = logits[part].astype(np.float64)
        scaled /= temperature
        top = scaled.max(axis=1)
        scaled -= top[:, None]
        # Less adds nothing to the largest term, which is 1, and an exponential that underflows is seven times as slow.
        np.maximum(scaled, _NEGLIGIBLE, out=scaled)
        np.exp(scaled, out=scaled)
        result[part] = top + np.log(scaled.sum(axis=1))
    return result


def normalise(embedding: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Rows divided by their Euclidean norm [B, D]; a zero row stays zero.

    The norm is taken in float64 because the square of a float32 beyond 1e19 is not a float32.
    """
    result = np.empty(embedding.shape, np.float32)
    for part in chunks(len(embedding)):
        rows = embedding[part].astype(np.float64)
        norm = np.sqrt(np.einsum("bd,bd->b", rows, rows))
        rows /= np.where(norm > 0, norm, 1.0)[:, None]
        result[part] = rows
    return result


def writable(array: Array) -> Array:
    """The array, or a copy where it is read-only, as what comes out of an object store is."""
    return array if array.flags.writeable else array.copy()


def groups(index: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Each value of ``index`` with the rows that hold it, in ascending order of both."""
    order = np.argsort(index, kind="stable")
    values, starts = np.unique(index[order], return_index=True)
    yield from zip(values.tolist(), np.split(order, starts[1:]), strict=True)


def listed(classes: npt.ArrayLike, most: int = 10) -> str:
    """Classes as a phrase: ``2 classes (4, 17)``, shortened where there are many."""
    names = [str(c) for c in np.asarray(classes).tolist()]
    shown = ", ".join(names[:most]) + (", …" if len(names) > most else "")
    return f"{len(names)} class{'es' if len(names) != 1 else ''} ({shown})"
