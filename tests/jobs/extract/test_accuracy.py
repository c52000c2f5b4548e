"""ImageNet's validation set is recognised, and how far the accuracy on it is from the published one is said."""

from __future__ import annotations

import numpy as np
import pytest

from ghost_ray.checks import LabelCounts
from ghost_ray.jobs.extract.commit import accuracy_notes

LABEL = np.repeat(np.arange(1000), 50)


def predictions(accuracy: float) -> np.ndarray:
    wrong = np.arange(50_000) >= round(50_000 * accuracy)
    return np.where(wrong, (LABEL + 1) % 1000, LABEL)


@pytest.mark.parametrize(
    ("name", "accuracy", "said", "warned"),
    [
        ("swin-t", 0.81474, "published for swin-t: 81.47 %, +0.00 points", False),
        ("swin-t", 0.8120, "81.20 %", False),
        ("swin-t", 0.5, "-31.47 points", True),
        ("mae-h", 0.88, "+1.07 points", True),
        (
            "torchvision:resnet50:IMAGENET1K_V1",
            0.76130,
            "published for torchvision:resnet50:IMAGENET1K_V1: 76.13 %",
            False,
        ),
    ],
)
def test_the_difference_is_said(name: str, accuracy: float, said: str, warned: bool) -> None:
    (note,) = accuracy_notes(name, 50_000, LabelCounts.of(LABEL, predictions(accuracy)), 1000)
    assert said in note
    assert ("check the weights" in note) == warned


def test_failed_images_leave_it_the_validation_set() -> None:
    kept = np.arange(50_000) % 1000 != 7
    counted = LabelCounts.of(LABEL[kept], predictions(0.8)[kept])
    assert accuracy_notes("swin-t", 50_000, counted, 1000)
    assert not accuracy_notes("swin-t", int(kept.sum()), counted, 1000)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("resnet50", LABEL),  # nobody states its accuracy here
        ("swin-t", np.arange(50_000) % 200),  # other classes
        ("swin-t", np.maximum(LABEL, 1)),  # no image of class 0, and too many of class 1
        ("swin-t", np.full(50_000, -1)),  # unknowns
    ],
)
def test_other_data_and_networks_say_nothing(name: str, label: np.ndarray) -> None:
    assert accuracy_notes(name, 50_000, LabelCounts.of(label, label), 1000) == []
