"""Any number of tiny images, and a network with a fixed delay: the pipeline with almost no work."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import torch
from cores import DIMENSIONS, note
from PIL import Image
from torch import nn

WAIT = "GHOST_RAY_SIMULATED_WAIT"  # seconds for each batch
CLASSES = "GHOST_RAY_SIMULATED_CLASSES"  # of the head
_DISTINCT = 1000  # files; the others are further names of these


class Device(nn.Module):
    """Simulates a network on its own device: a batch takes ``wait`` seconds and almost no CPU."""

    pretrained_cfg = {"input_size": (3, 32, 32)}

    def __init__(self, wait: float, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(DIMENSIONS, classes)
        self._wait = wait

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        start = time.time()
        time.sleep(self._wait)
        note("device", start, len(batch))
        logits: torch.Tensor = self.head(batch.flatten(1)[:, :DIMENSIONS])
        return logits


def device() -> nn.Module:
    """The network as ``--model tiny:device``."""
    torch.manual_seed(0)
    return Device(float(os.environ.get(WAIT, "0")), int(os.environ.get(CLASSES, "10")))


def write_images(root: Path, count: int, classes: int = 10) -> None:
    """``count`` JPEGs of 36×36 pixels in folders by class; a thousand files, hard-linked under as many names."""
    rng = np.random.default_rng(0)
    folders = [root / f"class-{label:03d}" for label in range(classes)]
    for folder in folders:
        folder.mkdir(parents=True)
    first: list[Path] = []
    for number in range(count):
        path = folders[number % classes] / f"{number:07d}.jpg"
        if number < _DISTINCT:
            Image.fromarray(rng.integers(0, 256, (36, 36, 3), np.uint8)).save(path)
            first.append(path)
        else:
            os.link(first[number % _DISTINCT], path)
