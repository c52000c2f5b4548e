"""Arithmetic shared by several scorers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ghost_ray.rows import Ints, chunks

Array = TypeVar("Array", bound=npt.NDArray[Any])


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
    """The array, or a copy if it is read-only, as arrays from an object store are."""
    return array if array.flags.writeable else array.copy()


def groups(index: Ints) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Each value of ``index`` with the rows that hold it, in ascending order of both."""
    order = np.argsort(index, kind="stable")
    values, starts = np.unique(index[order], return_index=True)
    yield from zip(values.tolist(), np.split(order, starts[1:]), strict=True)


def listed(classes: npt.ArrayLike, most: int = 10) -> str:
    """Classes as a phrase: ``2 classes (4, 17)``, shortened where there are many."""
    names = [str(c) for c in np.asarray(classes).tolist()]
    shown = ", ".join(names[:most]) + (", …" if len(names) > most else "")
    return f"{len(names)} class{'es' if len(names) != 1 else ''} ({shown})"
