"""What runs on the workers, one class a stage: list, read and decode, embed, write.

A block is the unit of everything: a few hundred images are listed, decoded, embedded, written and checkpointed
together. An image that fails stays in its block as a row with ``failed`` set, so that it too is done once.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata
from ray.data.datasource import BlockBasedFileDatasink

from ghost_ray.errors import one_line
from ghost_ray.extract.pixels import Preprocessing
from ghost_ray.extract.plan import Recipe
from ghost_ray.sources import DecodeError, Image, Reader, decode
from ghost_ray.store import row_schema, to_table

SECONDS = ("read", "decode", "embed")
_REQUESTS = 16  # to an object store at a time
_ATTEMPTS = 4  # at an object that an object store did not give


def block_schema(dimensions: int) -> pa.Schema:
    """A store's row, and beside it what became of the image and its share of the block's time."""
    fields = [pa.field("failed", pa.bool_()), pa.field("stage", pa.string()), pa.field("error", pa.string())]
    fields += [pa.field(f"{name}_seconds", pa.float32()) for name in SECONDS]
    return pa.schema([*row_schema(dimensions), *fields])


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
                "read_seconds": _constant((elapsed - decode_seconds) * share, items.num_rows),
                "decode_seconds": _constant(decode_seconds * share, items.num_rows),
            }
        )

    def _images(self, items: pa.Table) -> Iterator[Image]:
        filesystem = getattr(self.reader, "filesystem", None)
        if filesystem is None or isinstance(filesystem, fs.LocalFileSystem):
            yield from self.reader.read(items)
            return
        one_each = _are_separate(items)
        parts = [items.slice(row, 1) for row in range(items.num_rows)] if one_each else [items]
        with ThreadPoolExecutor(_REQUESTS) as pool:
            for images in pool.map(self._patiently, parts):
                yield from images

    def _patiently(self, items: pa.Table) -> list[Image]:
        """Ask again, a little later, for what a busy object store did not give."""
        images = list(self.reader.read(items))
        for attempt in range(1, _ATTEMPTS):
            missing = [row for row, image in enumerate(images) if image.data is None]
            if not missing:
                break
            time.sleep(0.2 * 2**attempt)
            again = self.reader.read(items.take(pa.array(missing)))
            for row, image in zip(missing, again, strict=True):
                images[row] = image
        return images


def _are_separate(items: pa.Table) -> bool:
    """Whether every image is a file of its own, to be asked for by itself."""
    return len(items["file"].unique()) == items.num_rows


def _constant(value: float, rows: int) -> pa.Array:
    return pa.array(np.full(rows, value, np.float32))


class Embed:
    """Prepared pictures → rows of the store. One instance an actor; it holds the network."""

    def __init__(self, recipe: Recipe, preprocessing: Preprocessing, batch_size: int, threads: int, gpus: float):
        import torch

        # Ray tells OpenMP to use one thread in whatever reserves at most one CPU.
        torch.set_num_threads(threads)
        warnings.filterwarnings("ignore", message=".*not writable.*")
        self._backbone = recipe.load(None if gpus else "cpu")
        self._preprocessing, self._batch_size = preprocessing, batch_size

    def __call__(self, block: pa.Table) -> pa.Table:
        import torch

        start = time.perf_counter()
        pixels = _pixels(block, self._preprocessing)
        stages, errors = block["stage"].to_pylist(), block["error"].to_pylist()
        sound = np.flatnonzero(np.asarray(block["stage"].is_null()))
        rows = block.num_rows
        embedding = np.zeros((rows, self._backbone.dimensions), np.float32)
        prediction = np.zeros(rows, np.int32)
        outputs = []
        for first in range(0, len(sound), self._batch_size):
            at = sound[first : first + self._batch_size]
            whole = at[-1] - at[0] + 1 == len(at)
            batch = torch.from_numpy(pixels[at[0] : at[-1] + 1] if whole else pixels[at])
            vectors, logits = self._backbone.embed(self._preprocessing.finish(batch.to(self._backbone.device)))
            finite = torch.isfinite(vectors).all(1) & torch.isfinite(logits).all(1)
            outputs.append((at, vectors, logits.argmax(1), finite))
        # Fetched after the last batch was handed over: a GPU computes while the next batch is prepared.
        for at, vectors, classes, finite in outputs:
            good = finite.cpu().numpy()
            embedding[at] = np.where(good[:, None], vectors.cpu().numpy(), 0)
            prediction[at] = np.where(good, classes.cpu().numpy(), 0)
            for row in at[~good]:
                stages[row], errors[row] = "embed", "the embedding or its logits are not finite"
        seconds = (time.perf_counter() - start) / max(1, rows)
        table = to_table(block["key"].combine_chunks(), block["label"].to_numpy(), prediction, embedding)
        for name, column in {
            "failed": pa.array([stage is not None for stage in stages]),
            "stage": pa.array(stages, pa.string()),
            "error": pa.array(errors, pa.string()),
            "read_seconds": block["read_seconds"],
            "decode_seconds": block["decode_seconds"],
            "embed_seconds": _constant(seconds, rows),
        }.items():
            table = table.append_column(name, column)
        return table


def _pixels(block: pa.Table, preprocessing: Preprocessing) -> np.ndarray:
    """The block's pictures as an array, without copying where the block is in one piece."""
    flat = block["pixels"].combine_chunks().flatten().to_numpy(zero_copy_only=True)
    return flat.reshape(block.num_rows, *preprocessing.shape)


class BlockSink(BlockBasedFileDatasink):
    """Writes each block to a Parquet file of its own and tells the tally what is in it.

    A file-based sink of Ray Data, which wraps the two phases of its checkpoint around every write.
    """

    def __init__(self, path: str, filesystem: fs.FileSystem, schema: pa.Schema, tally: Any) -> None:
        super().__init__(path, filesystem=filesystem, file_format="parquet")
        self._block_schema, self._tally = schema, tally

    def write_block_to_file(self, block: Any, file: pa.NativeFile) -> None:
        start = time.perf_counter()
        table = block.to_arrow().select(self._block_schema.names).cast(self._block_schema)
        pq.write_table(table, file, compression="none", use_dictionary=False)
        self._tally.report(table, time.perf_counter() - start)
