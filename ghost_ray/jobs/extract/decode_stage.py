"""Listed images → cropped images, in CPU tasks. Nothing here imports torch, so a worker stays small.

A block is the unit of everything: a few hundred images are listed, decoded, embedded and written
together. An image that fails stays in its block as a row with a ``stage`` and an ``error``, so that it is not tried
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ghost_ray.config.policies import Stage
from ghost_ray.jobs.extract.pixels import Preprocessing
from ghost_ray.jobs.extract.prepare import Apart, prepare
from ghost_ray.jobs.extract.tally import Reporter
from ghost_ray.jobs.extract.write_stage import constant_column
from ghost_ray.sources import Image, Reader

_REQUESTS = 16  # to an object store at a time
_LIVES = 2  # workers that may die on a block before its images are decoded in a child process


@dataclass(frozen=True)
class Decode:
    """Items → prepared pictures: reads, decodes, resizes and crops.

    A block whose worker died is started again by another worker. After a few times, an image in the block may be the
    cause: then the images are decoded in a child process, and an image that kills it is a failure.
    """

    reader: Reader
    preprocessing: Preprocessing
    reporter: Reporter | None = None  # who knows how often a block was begun

    def __call__(self, items: pa.Table) -> pa.Table:
        if self.reporter is None or self.reporter.begin(items) <= _LIVES:
            return self._prepared(items, partial(prepare, self.preprocessing))
        with closing(Apart(self.preprocessing)) as apart:
            return self._prepared(items, apart)

    def _prepared(self, items: pa.Table, prepare_one: Callable[[bytes], np.ndarray | str]) -> pa.Table:
        shape, dtype = self.preprocessing.shape, self.preprocessing.dtype
        pixels = np.zeros((items.num_rows, *shape), dtype)
        stages: list[str | None] = [None] * items.num_rows
        errors: list[str | None] = [None] * items.num_rows
        decode_seconds = 0.0
        start = time.perf_counter()
        for row, image in enumerate(self._images(items)):
            if image.data is None:
                stages[row], errors[row] = Stage.READ, image.error or "could not be read"
                continue
            before = time.perf_counter()
            prepared = prepare_one(image.data)
            if isinstance(prepared, str):
                stages[row], errors[row] = Stage.DECODE, prepared
            else:
                pixels[row] = prepared
            decode_seconds += time.perf_counter() - before
        elapsed = time.perf_counter() - start
        flat = pa.array(pixels.reshape(-1))
        share = 1 / max(1, items.num_rows)
        read = np.full(items.num_rows, (elapsed - decode_seconds) * share, np.float32)
        if "read_seconds" in items.column_names:  # of bytes that came along with the listing
            read += items["read_seconds"].to_numpy()
        return pa.table(
            {
                "key": items["key"],
                "label": items["label"],
                "portion": items["portion"],
                "place": items["place"],
                "pixels": pa.FixedSizeListArray.from_arrays(flat, int(np.prod(shape))),
                "stage": pa.array(stages, pa.string()),
                "error": pa.array(errors, pa.string()),
                "read_seconds": pa.array(read),
                "decode_seconds": constant_column(decode_seconds * share, items.num_rows),
            }
        )

    def _images(self, items: pa.Table) -> Iterator[Image]:
        """The images of the rows, in order: those that came along with the listing, and those still to be read."""
        came = pc.or_(items["data"].is_valid(), items["error"].is_valid())
        others = self._read(items.filter(pc.invert(came)))
        for row, here in enumerate(came.to_pylist()):
            if here:
                yield Image(items["key"][row].as_py(), items["data"][row].as_py(), items["error"][row].as_py())
            else:
                yield next(others)

    def _read(self, items: pa.Table) -> Iterator[Image]:
        if isinstance(self.reader.filesystem, fs.LocalFileSystem):
            yield from self.reader.read(items)
            return
        # One request per object, many requests at a time; for a shard, the reader itself requests many images at once.
        parts = [items.slice(row, 1) for row in range(items.num_rows)] if _are_separate(items) else [items]
        with ThreadPoolExecutor(_REQUESTS) as pool:
            for images in pool.map(lambda part: list(self.reader.read(part)), parts):
                yield from images


def _are_separate(items: pa.Table) -> bool:
    """Whether every image is a separate file, which needs its own request."""
    return bool(len(items["file"].unique()) == items.num_rows)
