"""Simulated cores, and the log of what each device and each core was doing.

Nothing here imports torch: the workers that decode import this module, and many of them share one machine's memory.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TextIO

import numpy as np
import ray
from PIL import Image

from ghost_ray.jobs.extract.decode import Preprocessing

if TYPE_CHECKING:
    import torch

LOG = "GHOST_RAY_SIMULATED_LOG"  # a folder for the log of what each device and each core was doing, and when
DIMENSIONS = 1280  # of a ViT-H, so that the data moved and written is no smaller than in a real run


def note(what: str, start: float, images: int, block: str = "-") -> None:
    """Log that this process was doing ``what`` from ``start`` until now, for a ``block``."""
    if LOG in os.environ:
        _lines(f"{os.environ[LOG]}/{what}-{os.getpid()}").write(f"{start} {time.time()} {images} {block}\n")


@cache
def _lines(path: str) -> TextIO:
    return open(path, "a", buffering=1, encoding="utf-8")


@dataclass(frozen=True)
class SimulatedCores(Preprocessing):
    """An image of 224×224 pixels takes ``seconds`` of a simulated core, and almost none of a real one."""

    seconds: float = 0.0

    def prepare(self, picture: Image.Image) -> np.ndarray:
        start = time.time()
        time.sleep(self.seconds)
        note("core", start, 1, ray.get_runtime_context().get_task_id() or "-")
        return np.zeros(self.shape, self.dtype)

    def finish(self, batch: torch.Tensor) -> torch.Tensor:
        return batch.flatten(1)[:, :DIMENSIONS].float()  # the rest of it would be a device's work


def simulated_cores(seconds: float) -> Preprocessing:
    """The preprocessing of images for ``tiny:device``, on simulated cores."""
    return SimulatedCores(_nothing, (224, 224, 3), (0.0,) * 3, (1.0,) * 3, seconds)


def _nothing(picture: Image.Image) -> Image.Image:
    return picture
