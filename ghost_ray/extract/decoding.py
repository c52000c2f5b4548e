"""Listed images → cropped pictures, in CPU tasks. Nothing here imports torch: such a worker stays small.

A block is the unit of everything: a few hundred images are listed, decoded, embedded, written and checkpointed
together. An image that fails stays in its block as a row with a ``stage`` and an ``error``, so that it too is done
once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from ghost_ray.errors import one_line
from ghost_ray.extract.blocks import constant_column
from ghost_ray.extract.pixels import Preprocessing
from ghost_ray.sources import DecodeError, Image, Reader, decode
from ghost_ray.sources.retry import was_down

_REQUESTS = 16  # to an object store at a time


class ItemBlocks(Datasource):
    """The listing, cut into blocks of ``rows``: one read task each."""

    def __init__(self, items: pa.Table, rows: int) -> None:
        super().__init__()
        self._items, self._rows = items, rows

    def get_name(self) -> str:
        return "Items"

    def estimate_inmemory_data_size(self) -> int:
        return int(self._items.nbytes)

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ReadTask]:
        return [self._task(start) for start in range(0, self._items.num_rows, self._rows)]

    def _task(self, start: int) -> ReadTask:
        stop = min(start + self._rows, self._items.num_rows)
        # Taken, not sliced: a slice would carry the whole listing along when it is sent.
        block = self._items.take(pa.array(np.arange(start, stop)))
        metadata = BlockMetadata(num_rows=block.num_rows, size_bytes=block.nbytes, input_files=None, exec_stats=None)
        return ReadTask(lambda: [block], metadata)


@dataclass(frozen=True)
class Decode:
    """Items → prepared pictures: reads, decodes, resizes and crops."""

    reader: Reader
    preprocessing: Preprocessing

    def __call__(self, items: pa.Table) -> pa.Table:
        shape, dtype = self.preprocessing.shape, self.preprocessing.dtype
        pixels = np.zeros((items.num_rows, *shape), dtype)
        stages: list[str | None] = [None] * items.num_rows
        errors: list[str | None] = [None] * items.num_rows
        decode_seconds = 0.0
        start = time.perf_counter()
        for row, image in enumerate(self._images(items)):
            if image.data is None:
                stages[row], errors[row] = "read", image.error or "could not be read"
                continue
            before = time.perf_counter()
            try:
                prepared = self.preprocessing.prepare(decode(image.data))
                if prepared.shape != shape:
                    raise DecodeError(f"the transform made {prepared.shape} of it, not {shape}")
                pixels[row] = prepared
            except DecodeError as error:
                stages[row], errors[row] = "decode", str(error)
            except Exception as error:  # a transform of any make on a picture of any shape
                stages[row], errors[row] = "decode", f"{type(error).__name__}: {one_line(error)}"
            decode_seconds += time.perf_counter() - before
        elapsed = time.perf_counter() - start
        flat = pa.array(pixels.reshape(-1))
        share = 1 / max(1, items.num_rows)
        return pa.table(
            {
                "key": items["key"],
                "label": items["label"],
                "pixels": pa.FixedSizeListArray.from_arrays(flat, int(np.prod(shape))),
                "stage": pa.array(stages, pa.string()),
                "error": pa.array(errors, pa.string()),
                "read_seconds": constant_column((elapsed - decode_seconds) * share, items.num_rows),
                "decode_seconds": constant_column(decode_seconds * share, items.num_rows),
            }
        )

    def _images(self, items: pa.Table) -> Iterator[Image]:
        if isinstance(self.reader.filesystem, fs.LocalFileSystem):
            yield from self.reader.read(items)
            return
        # An object a request, many requests at a time; of a shard the reader asks for many images at once itself.
        parts = [items.slice(row, 1) for row in range(items.num_rows)] if _are_separate(items) else [items]
        with ThreadPoolExecutor(_REQUESTS) as pool:
            for images in pool.map(self._from_object_store, parts):
                yield from images

    def _from_object_store(self, items: pa.Table) -> list[Image]:
        images = list(self.reader.read(items))
        failed = any(image.data is None for image in images)
        if failed and was_down(self.reader.filesystem, self.reader.base):
            images = list(self.reader.read(items))
        return images


def _are_separate(items: pa.Table) -> bool:
    """Whether every image is a file of its own, to be asked for by itself."""
    return len(items["file"].unique()) == items.num_rows
