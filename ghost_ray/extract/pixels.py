"""Preprocessing cut in two: up to the cropped bytes on the CPU workers, from there on where the network runs.

A picture as bytes is a quarter of the same picture as normalised floats, and that is what travels between workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

Transform = Callable[[Image.Image], torch.Tensor]


@dataclass(frozen=True)
class Preprocessing:
    """A network's transform in two parts that together are the transform itself.

    ``prepare`` turns an RGB picture into an array of ``shape`` and ``dtype``; ``finish`` turns a batch of those
    into what the network takes.
    """

    crop: Callable[[Image.Image], Any]
    shape: tuple[int, ...]
    mean: tuple[float, ...] | None = None  # None: `crop` is the whole transform
    std: tuple[float, ...] | None = None

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32 if self.mean is None else np.uint8)

    @property
    def bytes(self) -> int:
        """Size of one prepared picture."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def prepare(self, picture: Image.Image) -> np.ndarray:
        """An RGB picture as [H, W, 3] uint8, or as the transform's own [3, H, W] float32."""
        return np.asarray(self.crop(picture))

    def finish(self, batch: torch.Tensor) -> torch.Tensor:
        """Prepared pictures [B, ...] as the network's input [B, 3, H, W] float32, on the batch's device."""
        if self.mean is None or self.std is None:
            return batch
        # The same operations in the same order as torchvision's ToTensor and Normalize: the same floats.
        scaled = batch.permute(0, 3, 1, 2).float().div_(255)
        mean = torch.tensor(self.mean, device=batch.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=batch.device).view(-1, 1, 1)
        return scaled.sub_(mean).div_(std)


def split_transform(transform: Transform) -> Preprocessing:
    """Cut a transform before its conversion to floats; one of another make stays whole."""
    probe = Image.fromarray(np.random.default_rng(0).integers(0, 256, (237, 311, 3), np.uint8))
    expected = transform(probe)
    crop, mean, std = _parts(transform)
    if crop is not None and expected.dtype == torch.float32:
        cropped = np.asarray(crop(probe))
        if cropped.dtype == np.uint8 and cropped.ndim == 3:
            cut = Preprocessing(crop, cropped.shape, mean, std)
            if torch.equal(cut.finish(torch.from_numpy(cropped.copy())[None])[0], expected):
                return cut
    return Preprocessing(transform, tuple(expected.shape))


def _parts(transform: Any) -> tuple[Any, tuple[float, ...] | None, tuple[float, ...] | None]:
    from timm.data.transforms import MaybeToTensor
    from torchvision import transforms

    steps = list(getattr(transform, "transforms", []))
    if len(steps) < 3 or type(steps[-1]) is not transforms.Normalize:
        return None, None, None
    if not isinstance(steps[-2], MaybeToTensor | transforms.ToTensor):
        return None, None, None
    mean, std = (tuple(float(x) for x in values) for values in (steps[-1].mean, steps[-1].std))
    return transforms.Compose(steps[:-2]), mean, std
