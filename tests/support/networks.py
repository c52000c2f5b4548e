"""Small networks for the tests of extraction, by `--model networks:NAME`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from ghost_ray.jobs.extract.decode import ResizeAndCrop

CLASSES = 4
DIMENSIONS = 16


class Small(nn.Module):
    """One convolution, mean pooling, one linear layer; takes 32×32 pictures."""

    pretrained_cfg = {
        "input_size": (3, 32, 32),
        "mean": (0.5, 0.5, 0.5),
        "std": (0.5, 0.5, 0.5),
        "crop_pct": 1.0,
        "interpolation": "bilinear",
    }

    def __init__(self, seconds_an_image: float = 0.0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.stem = nn.Conv2d(3, DIMENSIONS, 4, stride=4)
            self.head = nn.Linear(DIMENSIONS, CLASSES)
        self._seconds = seconds_an_image

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self._seconds * len(x))
        return self.head(torch.relu(self.stem(x)).mean((2, 3)))


def small() -> nn.Module:
    return Small()


def slow() -> nn.Module:
    """Takes its time, so that a test can kill something in the middle."""
    return Small(seconds_an_image=0.04)


def slower() -> nn.Module:
    """Takes so much time that a node can join in the middle."""
    return Small(seconds_an_image=0.4)


def prepared(picture: Image.Image) -> torch.Tensor:
    """What `Small` takes; timm, which makes its transform, takes seconds to import."""
    pixels = torch.from_numpy(np.array(ResizeAndCrop(32, Image.Resampling.BILINEAR, 32, 32)(picture)))
    return pixels.permute(2, 0, 1).float().div(255).sub(0.5).div(0.5)


class _SlowTransform:
    def __call__(self, picture: Image.Image) -> torch.Tensor:
        time.sleep(0.05)
        return prepared(picture)


class _SlowToDecode(Small):
    transform = _SlowTransform()


def slow_to_decode() -> nn.Module:
    """Takes its time on the workers that decode."""
    return _SlowToDecode()


class _Noting(Small):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        node = os.environ.get("RAY_CLOUD_INSTANCE_ID")  # which the autoscaler gives to the nodes that it starts
        if node:
            Path(os.environ["GHOST_RAY_TEST_NOTES"], node).touch()
        return super().forward(x)


def noting() -> nn.Module:
    """Takes its time, and leaves a file named after the node that it ran on."""
    return _Noting(seconds_an_image=0.05)


class _AllergicToWhite(Small):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        white = (x > 0.999).all(dim=(1, 2, 3))
        return self.head(torch.relu(self.stem(x)).mean((2, 3)) / torch.where(white, 0.0, 1.0)[:, None])


def allergic_to_white() -> nn.Module:
    """Embeds an all-white picture as infinity."""
    return _AllergicToWhite()


def other() -> nn.Module:
    """The same shape with other weights."""
    network = Small()
    with torch.no_grad():
        network.stem.weight.add_(1)
    return network


def gloomy() -> nn.Module:
    """The same with logits that are all negative, which the softmax does not see."""
    network = Small()
    with torch.no_grad():
        network.head.bias.sub_(20)
    return network
