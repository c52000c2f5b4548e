"""How the accuracy on ImageNet's validation set compares with the one its authors publish for a network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ghost_ray.backbone import published_accuracy
from ghost_ray.store import Store

_IMAGES, _CLASSES = 50_000, 1000  # of the validation set: fifty images per class
_TOLERANCE = 0.005  # another decoder or resampler moves a few images, not hundreds


@dataclass(frozen=True)
class Counted:
    """Rows with a label, and rows whose prediction is their label, per class."""

    known: np.ndarray  # [K] int64
    right: np.ndarray  # [K] int64

    @classmethod
    def of(cls, label: np.ndarray, prediction: np.ndarray, classes: int) -> Counted:
        """From labels and predictions, [n] int32."""
        known = label >= 0
        counts = (label[known], label[known & (label == prediction)])
        return cls(*(np.bincount(each, minlength=classes) for each in counts))

    @property
    def accuracy(self) -> float | None:
        """Of all rows with a label; None if there is none."""
        return float(self.right.sum() / self.known.sum()) if self.known.any() else None


def count_right(store: Store) -> Counted:
    """Go through the labels and predictions of a store, a piece at a time."""
    nothing = np.zeros(store.classes, np.int64)
    known, right = nothing, nothing
    for piece in store.pieces():
        columns = store.read_small(piece, "label", "pred")
        counted = Counted.of(np.asarray(columns["label"]), np.asarray(columns["pred"]), store.classes)
        known, right = known + counted.known, right + counted.right
    return Counted(known, right)


def accuracy_notes(name: str, images: int, counted: Counted) -> list[str]:
    """A sentence if the data look like ImageNet's validation set and the network's accuracy on it is published.

    Parameters
    ----------
    images : int
        How many there were, those that failed included.
    """
    published = published_accuracy(name)
    looks_right = images == _IMAGES and len(counted.known) == _CLASSES and counted.known.max() <= _IMAGES // _CLASSES
    accuracy = counted.accuracy
    if published is None or accuracy is None or not looks_right:
        return []
    note = (
        f"accuracy {100 * accuracy:.2f} % on what looks like ImageNet's validation set; "
        f"published for {name}: {100 * published:.2f} %, {100 * (accuracy - published):+.2f} points"
    )
    if abs(accuracy - published) > _TOLERANCE:
        note += "; more than 0.5 points off: check the weights, the labels and the images"
    return [note]
