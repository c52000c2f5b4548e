"""Preprocessing cut in two: up to the cropped bytes on the CPU workers, from there on where the network runs.

A picture as bytes is a quarter of the same picture as normalised floats, and that is what travels between workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    import torch

# The shorter side is made as long as the network wants, whatever becomes of the longer one: a line of 65,535 pixels
# would take 13 GB. So many pixels take less than the largest picture that is decoded.
_MAX_RESIZED_PIXELS = 1 << 26
# Wide, tall, square, smaller and larger than networks take: both halves together must agree with the whole on all.
_PROBES = ((237, 311), (640, 201), (97, 130), (224, 224), (512, 512))


@dataclass(frozen=True)
class ResizeAndCrop:
    """The shorter side to ``size``, then the middle ``height`` × ``width``: what torchvision does, without torch."""

    size: int
    interpolation: int  # Pillow's number
    height: int
    width: int

    def __call__(self, picture: Image.Image) -> Image.Image:
        width, height = picture.size
        longer = int(self.size * max(width, height) / min(width, height))
        width, height = (self.size, longer) if width <= height else (longer, self.size)
        if width * height > _MAX_RESIZED_PIXELS:
            raise ValueError(f"{picture.width}×{picture.height} pixels would be resized to {width}×{height}")
        if picture.size != (width, height):
            picture = picture.resize((width, height), Image.Resampling(self.interpolation))
        left, top = round((width - self.width) / 2.0), round((height - self.height) / 2.0)
        return picture.crop((left, top, left + self.width, top + self.height))


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

    def second_half(self) -> Preprocessing:
        """What the actors need of it; the first half of a foreign transform may hold anything, torch included."""
        return replace(self, crop=_done_before)

    def prepare(self, picture: Image.Image) -> np.ndarray:
        """An RGB picture as [H, W, 3] uint8, or as the transform's own [3, H, W] float32."""
        return np.asarray(self.crop(picture))

    def finish(self, batch: torch.Tensor) -> torch.Tensor:
        """Prepared pictures [B, ...] as the network's input [B, 3, H, W] float32, on the batch's device."""
        if self.mean is None or self.std is None:
            return batch
        # The same operations in the same order as torchvision's ToTensor and Normalize: the same floats.
        scaled = batch.permute(0, 3, 1, 2).float().div_(255)
        mean, std = (scaled.new_tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return scaled.sub_(mean).div_(std)


def _done_before(picture: Image.Image) -> Image.Image:
    raise AssertionError("pictures are cropped before they come here")


def split_transform(transform: Callable[[Image.Image], torch.Tensor]) -> Preprocessing:
    """Split a transform before its conversion to floats; an unknown transform stays whole."""
    rng = np.random.default_rng(0)
    probes = [Image.fromarray(rng.integers(0, 256, (*shape, 3), np.uint8)) for shape in _PROBES]
    for candidate in _candidates(transform, probes[0]):
        if all(_agree(candidate, transform, probe) for probe in probes):
            return candidate
    return Preprocessing(transform, tuple(transform(probes[0]).shape))


def _agree(cut: Preprocessing, transform: Callable[[Image.Image], torch.Tensor], picture: Image.Image) -> bool:
    import torch

    prepared = cut.prepare(picture)
    if prepared.dtype != np.uint8 or prepared.shape != cut.shape:
        return False
    return torch.equal(cut.finish(torch.from_numpy(prepared.copy())[None])[0], transform(picture))


def _candidates(transform: Any, picture: Image.Image) -> list[Preprocessing]:
    """Ways to split the transform, the smallest first; the caller checks whether they are right."""
    from timm.data.transforms import MaybeToTensor
    from torchvision import transforms
    from torchvision.transforms.functional import pil_modes_mapping

    if type(transform).__name__ == "ImageClassification":  # of torchvision's weights; its module is private
        size, middle = transform.resize_size[0], transform.crop_size[0]
        crop = ResizeAndCrop(size, pil_modes_mapping[transform.interpolation], middle, middle)
        return [Preprocessing(crop, (middle, middle, 3), tuple(transform.mean), tuple(transform.std))]
    steps = list(getattr(transform, "transforms", []))
    if len(steps) < 3 or type(steps[-1]) is not transforms.Normalize:
        return []
    if not isinstance(steps[-2], MaybeToTensor | transforms.ToTensor):
        return []
    mean, std = (tuple(float(x) for x in values) for values in (steps[-1].mean, steps[-1].std))
    crops: list[Callable[[Image.Image], Any]] = [transforms.Compose(steps[:-2])]
    if [type(step) for step in steps[:-2]] == [transforms.Resize, transforms.CenterCrop]:
        resize, centre = steps[:2]
        if isinstance(resize.size, int) and resize.max_size is None and resize.size >= max(centre.size):
            crops.insert(0, ResizeAndCrop(resize.size, pil_modes_mapping[resize.interpolation], *centre.size))
    shape = np.asarray(crops[-1](picture)).shape
    return [Preprocessing(crop, shape, mean, std) for crop in crops]
