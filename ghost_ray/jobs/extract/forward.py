"""Runs the images of a block through the network, batch by batch; the device never waits for a copy."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ghost_ray.backbone import Backbone
from ghost_ray.errors import JobFailed
from ghost_ray.jobs.extract.network_process import Embedded
from ghost_ray.jobs.extract.pixels import Preprocessing

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")  # not all have a type of their own


@dataclass
class Begun:
    """A block handed to the device."""

    outputs: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]  # on the host, once `done`
    done: Any  # the CUDA event behind the last copy; None on a CPU
    at: float
    batch_size: int


class Batches:
    """Runs blocks of prepared pictures; :meth:`begin` hands one over, :meth:`finish` waits for its results.

    On a GPU nothing in between waits: images are copied from pinned memory on a separate stream, and results are copied
    back while the next block starts. If memory is short the batch is halved permanently.
    """

    def __init__(self, backbone: Backbone, preprocessing: Preprocessing, batch_size: int, *, pad: bool) -> None:
        self._backbone, self._preprocessing, self.batch_size, self._pad = backbone, preprocessing, batch_size, pad
        self._on_gpu = backbone.device.type == "cuda"
        self._copying = torch.cuda.Stream(backbone.device) if self._on_gpu else None
        self._free_since = time.perf_counter()

    def begin(self, pixels: np.ndarray) -> Begun:
        """Hand over pictures [n, ...]; ``pixels`` may be overwritten when they are finished."""
        start, outputs, first = time.perf_counter(), [], 0
        while first < len(pixels):
            batch = torch.from_numpy(pixels[first : first + self.batch_size])
            try:
                outputs.append(self._run(batch))
            except RuntimeError as error:
                if not _is_out_of_memory(error):
                    raise
                self._halve(error)
                continue
            first += len(batch)
        done = torch.cuda.Event() if self._on_gpu else None
        if done is not None:
            done.record()
        return Begun(outputs, done, start, self.batch_size)

    def finish(self, begun: Begun) -> Embedded:
        """Wait for the results of a block."""
        if begun.done is not None:
            begun.done.synchronize()
        now = time.perf_counter()
        # The previous block may have used the device for a while after this one was handed over.
        seconds, self._free_since = now - max(begun.at, self._free_since), now
        vectors, classes, finite = (
            np.concatenate([each.numpy() for each in column]) for column in zip(*begun.outputs, strict=True)
        )
        return Embedded(vectors, classes, finite, seconds, begun.batch_size)

    def _run(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        count = len(batch)
        if self._pad and count < self.batch_size:
            # A compiled network is compiled again for every new shape.
            batch = torch.cat([batch, batch.new_zeros(self.batch_size - count, *batch.shape[1:])])
        vectors, logits = self._backbone.embed(self._preprocessing.finish(self._to_device(batch)))
        vectors, logits = vectors[:count], logits[:count]
        finite = torch.isfinite(vectors).all(1) & torch.isfinite(logits).all(1)
        return self._to_host(vectors), self._to_host(logits.argmax(1)), self._to_host(finite)

    def _to_device(self, batch: torch.Tensor) -> torch.Tensor:
        if self._copying is None:
            return batch
        computing = torch.cuda.current_stream(self._backbone.device)
        with torch.cuda.stream(self._copying):
            copied = batch.pin_memory().to(self._backbone.device, non_blocking=True)
        computing.wait_stream(self._copying)
        copied.record_stream(computing)
        return copied

    def _to_host(self, values: torch.Tensor) -> torch.Tensor:
        if not self._on_gpu:
            return values
        return torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values, non_blocking=True)

    def _halve(self, error: RuntimeError) -> None:
        if self.batch_size == 1:
            raise JobFailed(f"not even one image at a time fits into the device's memory: {error}") from error
        self.batch_size //= 2
        if self._on_gpu:
            torch.cuda.empty_cache()


def _is_out_of_memory(error: RuntimeError) -> bool:
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError) or any(words in text for words in _OUT_OF_MEMORY)
