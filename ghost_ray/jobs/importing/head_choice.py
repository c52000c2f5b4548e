"""The last linear layer in a file of tensors, by its shape and its common names."""

from __future__ import annotations

import numpy as np

from ghost_ray.checks.sets import HEAD_TOLERANCE, sample_places
from ghost_ray.errors import InputError, redact
from ghost_ray.jobs.importing.choosing import load_entry, open_given, split_name
from ghost_ray.jobs.importing.readers import ArrayFile, Entry
from ghost_ray.jobs.importing.workspace import Workspace
from ghost_ray.rows import Head

# If several tensors have the shape of the head, the first of these names wins.
_LAYERS = ("head.fc", "heads.head", "head", "fc", "classifier", "linear", "last_linear", "output", "out")
_BIAS = {"w": "b", "W": "b"}
_PROOF_ROWS = 512


def read_head(given: str, classes: int, dimensions: int, workspace: Workspace) -> Head:
    """The head of K classes and D dimensions; without a bias, zeros. InputError says what the file holds instead."""
    uri, name = split_name(given)
    file = open_given(given, "head", workspace)
    weight = _weight(file, name, (classes, dimensions), uri)
    bias = _bias(file, weight, classes, uri)
    numbers = load_entry(weight, uri, "head").reshape(classes, dimensions).astype(np.float32)
    offset = np.zeros(classes, np.float32) if bias is None else load_entry(bias, uri, "head").astype(np.float32)
    if not (np.isfinite(numbers).all() and np.isfinite(offset).all()):
        raise InputError("head", redact(uri), "holds a NaN or an infinity (as float32)")
    return Head(numbers, offset)


def mismatch(head: Head, features: np.ndarray, logits: np.ndarray) -> str | None:
    """Why the head is left out: head(features) are not the logits of some rows. None if they are."""
    # From all over the arrays: rows in another order may start in the same way.
    places = sample_places(len(features), _PROOF_ROWS)
    sample, expected = (np.asarray(array[places], np.float32) for array in (features, logits))
    error = float(np.abs(head.logits(sample) - expected).max())
    if error <= HEAD_TOLERANCE * max(1.0, float(np.abs(expected).max())):
        return None
    return (
        f"logits do not follow from features and head (they differ by up to {error:.3g}): "
        "the logits are kept and the head is left out"
    )


def _weight(file: ArrayFile, name: str, shape: tuple[int, int], uri: str) -> Entry:
    fitting = [entry for entry in file.entries if _without_ones(entry.shape) == _without_ones(shape)]
    if name:
        fitting = [entry for entry in fitting if entry.name in (name, f"{name}.weight")]
    elif len(fitting) > 1:
        by_name = (_named(fitting, layer) for layer in _LAYERS)
        fitting = next((found for found in by_name if found), fitting)
    if len(fitting) == 1:
        return fitting[0]
    wanted = f"{shape[0]}×{shape[1]} (classes × dimensions)"
    if fitting:
        problem = f"holds several weights of {wanted}: {file.describe(fitting)}"
        raise InputError("head", redact(uri), problem, "say which with `head=FILE#NAME`")
    called = f" {name!r}" if name else ""
    matrices = [entry for entry in file.entries if len(entry.shape) == 2] or file.entries
    turned = any(_without_ones(entry.shape) == _without_ones(shape[::-1]) for entry in matrices)
    raise InputError(
        "head",
        redact(uri),
        f"holds no weight{called} of {wanted}; it holds {file.describe(matrices)}",
        "transpose it" if turned else "",
    )


def _named(entries: list[Entry], layer: str) -> list[Entry]:
    """The weights of that layer, alone in the file or within a network."""
    return [entry for entry in entries if f".{entry.name}".endswith(f".{layer}.weight")]


def _bias(file: ArrayFile, weight: Entry, classes: int, uri: str) -> Entry | None:
    layer, dot, last = weight.name.rpartition(".")
    bias = file.find(f"{layer}{dot}{_BIAS.get(last, last.replace('weight', 'bias'))}") if last else None
    if bias is not None and _without_ones(bias.shape) != _without_ones((classes,)):
        problem = f"holds {weight.describe()} and {bias.describe()}, expected {classes} biases"
        raise InputError("head", redact(uri), problem)
    return bias


def _without_ones(shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """A shape as that of a linear layer: a convolution of one pixel is one too."""
    kept = len(shape)
    while kept > 2 and shape[kept - 1] == 1:
        kept -= 1
    return shape[:kept]
