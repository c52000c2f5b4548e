"""Checks arrays that a caller gives: an error names the argument, what was found and what was expected."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ghost_ray.checks.sets import sample_places
from ghost_ray.errors import InputError, one_line
from ghost_ray.files.manifest import Network
from ghost_ray.jobs.importing.head_choice import mismatch
from ghost_ray.jobs.importing.label_column import read_labels
from ghost_ray.rows import Head, Singles, chunks
from ghost_ray.store import UNKNOWN, ArrayStore

# numpy, torch on any device, or what numpy makes an array of.
Array = Any
_ROWS_AT_A_TIME = 1 << 14
_ROWS_TO_SOLVE = 4  # for each unknown of a head


@dataclass(frozen=True)
class GivenRows:
    """Rows of one network: what was given, as the jobs take it."""

    features: Singles  # [N, D]
    labels: npt.NDArray[np.int32]  # [N], −1 = unknown
    predictions: npt.NDArray[np.int32]  # [N]
    logits: Singles | None  # [N, K]
    classes: int
    class_names: list[str] | None

    def store(self, model: str, field: str, head: Head | None = None) -> ArrayStore:
        """The rows as a store."""
        network = Network(name=model, classes=self.classes, dimensions=self.features.shape[1])
        return ArrayStore(
            self.labels, self.predictions, self.features, self.logits, head, network, self.class_names, field
        )


def given_rows(
    features: Array,
    labels: Array | None,
    logits: Array | None,
    predictions: Array | None = None,
    class_names: Sequence[str] | None = None,
    within: str = "",
) -> GivenRows:
    """Check arrays that belong together.

    Parameters
    ----------
    labels : array of shape [N], optional
        None: all rows are unknown.
    predictions : array of shape [N], optional
        Instead of logits.
    within : str
        The argument that the arrays are parts of, for errors: ``known``.
    """
    names = {part: f"{within}.{part}" if within else part for part in ("features", "labels", "logits", "predictions")}
    rows = matrix(features, names["features"], "D")
    if (logits is None) == (predictions is None):
        problem = "are given with `predictions`" if logits is not None else "are needed, or `predictions`"
        raise InputError(names["logits"], "", problem, "one of the two")
    scores = None if logits is None else matrix(logits, names["logits"], "K", rows=len(rows))
    raw = None if labels is None else _column(labels, names["labels"], len(rows))
    if scores is not None:
        classes = scores.shape[1]
        predicted = scores.argmax(axis=1).astype(np.int32)
    else:
        found = _column(predictions, names["predictions"], len(rows))
        classes = _classes(found, raw, class_names, names["predictions"])
        predicted = read_labels(found, classes, None, field=names["predictions"], given="").index
        if predicted.min() < 0:
            row = int(predicted.argmin())
            raise InputError(names["predictions"], "", f"row {row} is {predicted[row]}, expected a class")
    if class_names is not None and len(class_names) != classes:
        raise InputError("class_names", "", f"has {len(class_names)} names, expected {classes}")
    listed = None if class_names is None else list(class_names)
    if raw is None:
        return GivenRows(rows, np.full(len(rows), UNKNOWN, np.int32), predicted, scores, classes, listed)
    read = read_labels(raw, classes, listed, field=names["labels"], given="")
    return GivenRows(rows, read.index, predicted, scores, classes, read.class_names)


def matrix(values: Array, name: str, width: str | int, rows: int | None = None) -> Singles:
    """Numbers of shape [N, width] as float32, all of them finite.

    Parameters
    ----------
    width : str or int
        The expected number of columns, or the symbol for it.
    rows : int, optional
        How many rows the features have.
    """
    array = as_numpy(values, name)
    wanted = f"[{'N' if rows is None else rows}, {width}]"
    if array.dtype.kind not in "fiu":
        raise InputError(name, "", f"holds values of type {array.dtype}, expected numbers of shape {wanted}")
    right = array.ndim == 2 and array.shape[1] > 0 and (rows is None or len(array) == rows)
    if not right or (isinstance(width, int) and array.shape[1] != width):
        raise InputError(name, "", f"has shape {list(array.shape)}, expected {wanted}")
    if not len(array):
        raise InputError(name, "", f"has shape {list(array.shape)}: there are no rows")
    with np.errstate(over="ignore"):
        single = array.astype(np.float32, copy=False)
    for part in chunks(len(single), _ROWS_AT_A_TIME):
        finite = np.isfinite(single[part]).all(axis=1)
        if not finite.all():
            row = part.start + int(finite.argmin())
            raise InputError(name, "", f"row {row} holds a NaN or an infinity (as float32)")
    return np.ascontiguousarray(single)


def given_head(head: Any, classes: int, dimensions: int) -> Head | None:
    """The last linear layer: weight [K, D] and bias [K], or a ``torch.nn.Linear``."""
    if head is None:
        return None
    if hasattr(head, "weight") and hasattr(head, "bias"):
        head = (head.weight, np.zeros(classes) if head.bias is None else head.bias)
    if not isinstance(head, tuple | list) or len(head) != 2:
        raise InputError("head", "", f"is a {type(head).__name__}, expected (weight, bias) or a torch.nn.Linear")
    weight = matrix(head[0], "head.weight", dimensions, rows=classes)
    bias = _column(head[1], "head.bias", classes).astype(np.float32)
    if not np.isfinite(bias).all():
        raise InputError("head.bias", "", "holds a NaN or an infinity (as float32)")
    return Head(weight, bias)


def head_note(head: Head | None, rows: GivenRows) -> str | None:
    """Why the head is left out: the logits do not follow from it; None if they do, as for ``import``."""
    if head is None or rows.logits is None:
        return None
    return mismatch(head, rows.features, rows.logits)


def recovered_head(features: Singles, logits: Singles) -> Head | None:
    """The only linear layer that makes these logits of these features; None if there is none, or several are."""
    from scipy.linalg import lstsq

    dimensions = features.shape[1]
    places = sample_places(len(features), _ROWS_TO_SOLVE * (dimensions + 1))
    known = np.column_stack([features[places], np.ones(len(places))]).astype(np.float64)
    solved, _, rank, _ = lstsq(known, logits[places].astype(np.float64), lapack_driver="gelsy", check_finite=False)
    if rank <= dimensions:
        return None
    head = Head(solved[:-1].T.astype(np.float32), solved[-1].astype(np.float32))
    return head if mismatch(head, features, logits) is None else None


def as_numpy(values: Array, name: str) -> npt.NDArray[Any]:
    """An array of this process; a tensor comes from whatever device it is on."""
    if is_tensor(values):
        tensor = values.detach().cpu()
        # numpy has no bfloat16.
        return np.asarray((tensor.float() if "bfloat16" in str(tensor.dtype) else tensor).numpy())
    try:
        return np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise InputError(name, "", f"is not an array: {one_line(error, 120)}") from None


def like(result: npt.NDArray[Any], given: Array) -> Any:
    """A result as the caller's arrays are: a tensor on their device, or numpy."""
    if not is_tensor(given):
        return result
    return sys.modules["torch"].from_numpy(result).to(given.device)


def is_tensor(values: object) -> bool:
    torch = sys.modules.get("torch")  # who passes a tensor has imported torch already
    return torch is not None and isinstance(values, torch.Tensor)


def _column(values: Array, name: str, rows: int) -> npt.NDArray[Any]:
    array = as_numpy(values, name)
    if array.shape != (rows,):
        hint = "one-hot rows become indices by argmax(axis=1)" if array.ndim == 2 and array.shape[1] > 1 else ""
        raise InputError(name, "", f"has shape {list(array.shape)}, expected [{rows}]", hint)
    return array


def _classes(
    predictions: npt.NDArray[Any], labels: npt.NDArray[Any] | None, names: Sequence[str] | None, field: str
) -> int:
    """How many classes there are where no logits say so."""
    if names is not None:
        return len(names)
    if predictions.dtype.kind not in "iu" or (labels is not None and labels.dtype.kind not in "iu"):
        raise InputError(field, "", f"are of type {predictions.dtype}, expected class indices", "or give `logits`")
    highest = max(int(predictions.max()), -1 if labels is None else int(labels.max()))
    return max(highest + 1, 1)
