"""Common mistakes, made on the demo's own arrays, and the notes that report them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax


@dataclass(frozen=True)
class Arrays:
    """Features [N, D], logits [N, K], and labels [N] as indices or names."""

    features: np.ndarray
    logits: np.ndarray
    labels: np.ndarray


def _shuffled(values: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).permutation(values)


def _number(labels: np.ndarray) -> np.ndarray:
    """Names whose order as text, 1, 10, 11, 2, 20, 3, is not that of their numbers."""
    return np.array([f"digit-{(1, 2, 3, 10, 11, 20)[label]}" for label in labels])


# The mistake → how to make it, and words of the one note about it.
ON_IMPORT: dict[str, tuple[Callable[[Arrays], Arrays], str]] = {
    "labels shifted": (
        lambda a: replace(a, labels=(a.labels + 1) % a.logits.shape[1]),
        "with 1 subtracted from each",
    ),
    "labels shuffled": (lambda a: replace(a, labels=_shuffled(a.labels)), "do not seem to belong together row by row"),
    "classes in another order": (
        lambda a: replace(a, labels=np.array([2, 0, 4, 1, 5, 3])[a.labels]),
        "the classes seem to be in another order",
    ),
    "names sorted as text": (lambda a: replace(a, labels=_number(a.labels)), "they seem to be sorted as text"),
    "rows of the features shuffled": (
        lambda a: replace(a, features=_shuffled(a.features)),
        "features and logits do not seem to be in the same order",
    ),
    "rows of the logits shuffled": (
        lambda a: replace(a, logits=_shuffled(a.logits)),
        "the logits seem to be in another order than features and labels",
    ),
    "probabilities for logits": (lambda a: replace(a, logits=softmax(a.logits, 1)), "look like probabilities"),
    "normalised features": (
        lambda a: replace(a, features=a.features / np.linalg.norm(a.features, axis=1, keepdims=True)),
        "has length 1",
    ),
    "standardised features": (
        lambda a: replace(a, features=(a.features - a.features.mean(0)) / a.features.std(0)),
        "mean 0 and standard deviation 1",
    ),
    "labels left in the features": (
        lambda a: replace(a, features=np.c_[a.labels, a.features]),
        "column 0 of the features holds the labels",
    ),
    "negative top logits": (lambda a: replace(a, logits=a.logits - 30), "the top logit is negative in"),
}
