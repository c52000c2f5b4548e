"""How the accuracy on ImageNet's validation set compares with the one its authors publish for a network."""

from __future__ import annotations

import numpy as np

from ghost_ray.backbone import published_accuracy
from ghost_ray.checks import LabelCounts

_IMAGES, _CLASSES = 50_000, 1000  # of the validation set: fifty images per class
_TOLERANCE = 0.005  # another decoder or resampler moves a few images, not hundreds


def accuracy_notes(name: str, images: int, labels: LabelCounts, classes: int) -> list[str]:
    """A sentence if the data look like ImageNet's validation set and the network's accuracy on it is published.

    Parameters
    ----------
    images : int
        How many there were, those that failed included.
    """
    published = published_accuracy(name)
    known, accuracy = labels.known(), labels.accuracy
    looks_right = images == _IMAGES and classes == _CLASSES
    if published is None or accuracy is None or not looks_right:
        return []
    if np.bincount(known.label, known.n).max() > _IMAGES // _CLASSES:
        return []
    note = (
        f"accuracy {100 * accuracy:.2f} % on what looks like ImageNet's validation set; "
        f"published for {name}: {100 * published:.2f} %, {100 * (accuracy - published):+.2f} points"
    )
    if abs(accuracy - published) > _TOLERANCE:
        note += "; more than 0.5 points off: check the weights, the labels and the images"
    return [note]
