"""Listed images → cropped pictures, in CPU tasks. Nothing here imports torch, so a worker stays small.

A network's preprocessing is cut in two: up to the cropped bytes here, from there on where the network runs. A picture
as bytes is a quarter of the same picture as normalised floats, and that is what travels between workers.

An image that fails stays in its block as a row with a ``stage`` and an ``error``, so that it is not tried again.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image as Pillow
from pyarrow import fs

from ghost_ray.cluster.ray_interfaces import pickled
from ghost_ray.config.limits import Stage
from ghost_ray.errors import JobFailed, one_line
from ghost_ray.jobs.extract.blocks import Block
from ghost_ray.sources import DecodeError, Image, Reader, decode

if TYPE_CHECKING:
    import torch

_REQUESTS = 16  # to an object store at a time


@dataclass(frozen=True)
class Decode:
    """Reads, decodes, resizes and crops the images of a block.

    With ``isolated``, images are decoded in a child process, and an image that kills it is a failure. That is for
    what is left after a worker died: an image may be the cause.
    """

    reader: Reader
    preprocessing: Preprocessing
    isolated: bool = False

    def __call__(self, block: Block) -> Block:
        listed = block.images
        prepare = _child_of(self.preprocessing) if self.isolated else partial(prepare_image, self.preprocessing)
        pixels = np.zeros((listed.num_rows, *self.preprocessing.shape), self.preprocessing.dtype)
        stages: list[str | None] = [None] * listed.num_rows
        errors: list[str | None] = [None] * listed.num_rows
        start, decode_seconds = time.perf_counter(), 0.0
        for row, image in enumerate(self._images(listed)):
            if image.data is None:
                stages[row], errors[row] = Stage.READ, image.error or "could not be read"
                continue
            before = time.perf_counter()
            prepared = prepare(image.data)
            if isinstance(prepared, str):
                stages[row], errors[row] = Stage.DECODE, prepared
            else:
                pixels[row] = prepared
            decode_seconds += time.perf_counter() - before
        read_seconds = block.seconds.get(Stage.READ, 0.0) + time.perf_counter() - start - decode_seconds
        size = int(np.prod(self.preprocessing.shape))
        columns = {name: listed[name] for name in ("key", "label", "group", "position")}
        columns["pixels"] = pa.FixedSizeListArray.from_arrays(pa.array(pixels.reshape(-1)), size)
        columns |= {"stage": pa.array(stages, pa.string()), "error": pa.array(errors, pa.string())}
        return replace(
            block, images=pa.table(columns), seconds={Stage.READ: read_seconds, Stage.DECODE: decode_seconds}
        )

    def _images(self, listed: pa.Table) -> Iterator[Image]:
        """The images of the rows, in order: those that came along with the listing, and those still to be read."""
        came = pc.or_(listed["data"].is_valid(), listed["error"].is_valid())
        others = self._read(listed.filter(pc.invert(came)))
        for row, there in enumerate(came.to_pylist()):
            if there:
                yield Image(listed["key"][row].as_py(), listed["data"][row].as_py(), listed["error"][row].as_py())
            else:
                yield next(others)

    def _read(self, items: pa.Table) -> Iterator[Image]:
        if isinstance(self.reader.filesystem, fs.LocalFileSystem):
            yield from self.reader.read(items)
            return
        # One request per object, many requests at a time; for a shard, the reader itself requests many images at once.
        separate = len(items["file"].unique()) == items.num_rows
        parts = [items.slice(row, 1) for row in range(items.num_rows)] if separate else [items]
        with ThreadPoolExecutor(_REQUESTS) as pool:
            for images in pool.map(lambda part: list(self.reader.read(part)), parts):
                yield from images


def prepare_image(preprocessing: Preprocessing, data: bytes) -> np.ndarray | str:
    """The prepared picture, or the reason in one line why there is none."""
    try:
        prepared = preprocessing.prepare(decode(data))
    except DecodeError as error:
        return str(error)
    except Exception as error:  # a transform of any make on a picture of any shape
        return f"{type(error).__name__}: {one_line(error)}"
    if prepared.shape != preprocessing.shape:
        return f"the transform returned shape {prepared.shape}, expected {preprocessing.shape}"
    return prepared


class ChildDecoder:
    """Prepares images in a child process; an image that kills it is reported like any other that cannot be decoded."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        self._preprocessing = pickled(preprocessing)
        self._start()

    def __call__(self, data: bytes) -> np.ndarray | str:
        try:
            self._connection.send_bytes(data)
            answer: np.ndarray | str = self._connection.recv()
            return answer
        except (EOFError, OSError):
            code = self._process.wait()
            self._connection.close()
            self._start()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return f"decoding it ends the process, with {how}"

    def _start(self) -> None:
        # Not a fork: it would inherit locks of other threads. Not multiprocessing: it would run a user's script again.
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._connection = Connection(ours.detach())
        try:
            self._connection.send_bytes(self._preprocessing)
            self._connection.recv()
        except (EOFError, OSError):  # not the fault of an image
            raise JobFailed("cannot start a process for decoding") from None


def serve() -> None:
    """The child: prepare the images that come, until the parent is gone."""
    connection = Connection(int(sys.argv[1]))
    preprocessing: Preprocessing = pickle.loads(connection.recv_bytes())  # of the process that started this one
    connection.send("ready")
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send(prepare_image(preprocessing, connection.recv_bytes()))


_children = threading.local()  # one for all blocks that a thread decodes; it ends with this process


def _child_of(preprocessing: Preprocessing) -> ChildDecoder:
    if getattr(_children, "preprocessing", None) != preprocessing:
        _children.decoder, _children.preprocessing = ChildDecoder(preprocessing), preprocessing
    decoder: ChildDecoder = _children.decoder
    return decoder


# ---- preprocessing in two halves

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

    def __call__(self, picture: Pillow.Image) -> Pillow.Image:
        width, height = picture.size
        longer = int(self.size * max(width, height) / min(width, height))
        width, height = (self.size, longer) if width <= height else (longer, self.size)
        if width * height > _MAX_RESIZED_PIXELS:
            raise ValueError(f"{picture.width}×{picture.height} pixels would be resized to {width}×{height}")
        if picture.size != (width, height):
            picture = picture.resize((width, height), Pillow.Resampling(self.interpolation))
        left, top = round((width - self.width) / 2.0), round((height - self.height) / 2.0)
        return picture.crop((left, top, left + self.width, top + self.height))


@dataclass(frozen=True)
class Preprocessing:
    """A network's transform in two parts that together are the transform itself.

    ``prepare`` turns an RGB picture into an array of ``shape`` and ``dtype``; ``finish`` turns a batch of those
    into what the network takes.
    """

    crop: Callable[[Pillow.Image], Any]
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

    def prepare(self, picture: Pillow.Image) -> np.ndarray:
        """An RGB picture as [H, W, 3] uint8, or as the transform's own [3, H, W] float32."""
        return np.asarray(self.crop(picture))

    def finish(self, batch: torch.Tensor) -> torch.Tensor:
        """Prepared pictures [B, ...] as the network's input [B, 3, H, W] float32, on the batch's device."""
        if self.mean is None or self.std is None:
            return batch
        # The same operations in the same order as torchvision's ToTensor and Normalize: the same floats.
        scaled = batch.permute(0, 3, 1, 2).float().div_(255)
        mean, std = (_on_device(values, scaled.device) for values in (self.mean, self.std))
        return scaled.sub_(mean).div_(std)


@cache
def _on_device(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """One number per channel, copied once: each copy to a device would wait for all work that is queued there."""
    import torch

    return torch.tensor(values, dtype=torch.float32, device=device).view(-1, 1, 1)


def _done_before(picture: Pillow.Image) -> Pillow.Image:
    raise AssertionError("pictures are cropped before they come here")


def split_transform(transform: Callable[[Pillow.Image], torch.Tensor]) -> Preprocessing:
    """Split a transform before its conversion to floats; an unknown transform stays whole."""
    rng = np.random.default_rng(0)
    probes = [Pillow.fromarray(rng.integers(0, 256, (*shape, 3), np.uint8)) for shape in _PROBES]
    for candidate in _candidates(transform, probes[0]):
        if all(_agree(candidate, transform, probe) for probe in probes):
            return candidate
    return Preprocessing(transform, tuple(transform(probes[0]).shape))


def _agree(cut: Preprocessing, transform: Callable[[Pillow.Image], torch.Tensor], picture: Pillow.Image) -> bool:
    import torch

    prepared = cut.prepare(picture)
    if prepared.dtype != np.uint8 or prepared.shape != cut.shape:
        return False
    return torch.equal(cut.finish(torch.from_numpy(prepared.copy())[None])[0], transform(picture))


def _candidates(transform: Any, picture: Pillow.Image) -> list[Preprocessing]:
    """Ways to split the transform, the smallest first; the caller checks whether they are right."""
    steps = list(getattr(transform, "transforms", []))
    of_weights = type(transform).__name__ == "ImageClassification"  # of torchvision; its module is private
    if len(steps) < 3 and not of_weights:
        return []
    # These take longer to import than torch.
    from timm.data.transforms import MaybeToTensor
    from torchvision import transforms
    from torchvision.transforms.functional import pil_modes_mapping

    if of_weights:
        size, middle = transform.resize_size[0], transform.crop_size[0]
        crop = ResizeAndCrop(size, pil_modes_mapping[transform.interpolation], middle, middle)
        return [Preprocessing(crop, (middle, middle, 3), tuple(transform.mean), tuple(transform.std))]
    if type(steps[-1]) is not transforms.Normalize:
        return []
    if not isinstance(steps[-2], MaybeToTensor | transforms.ToTensor):
        return []
    mean, std = (tuple(float(x) for x in values) for values in (steps[-1].mean, steps[-1].std))
    crops: list[Callable[[Pillow.Image], Any]] = [transforms.Compose(steps[:-2])]
    if [type(step) for step in steps[:-2]] == [transforms.Resize, transforms.CenterCrop]:
        resize, centre = steps[:2]
        if isinstance(resize.size, int) and resize.max_size is None and resize.size >= max(centre.size):
            crops.insert(0, ResizeAndCrop(resize.size, pil_modes_mapping[resize.interpolation], *centre.size))
    shape = np.asarray(crops[-1](picture)).shape
    return [Preprocessing(crop, shape, mean, std) for crop in crops]
