"""Cropped pictures → rows of the store, in the actors that hold the network."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pyarrow as pa
import torch

from ghost_ray.extract.blocks import constant_column
from ghost_ray.extract.pixels import Preprocessing
from ghost_ray.extract.plan import Recipe
from ghost_ray.store import to_table


class Embed:
    """Prepared pictures → rows of the store. One instance an actor; it holds the network."""

    def __init__(self, recipe: Recipe, preprocessing: Preprocessing, batch_size: int, threads: int, gpus: float):
        # Ray tells OpenMP to use one thread in whatever reserves at most one CPU.
        torch.set_num_threads(threads)
        warnings.filterwarnings("ignore", message=".*not writable.*")
        self._backbone = recipe.load(None if gpus else "cpu")
        self._preprocessing, self._batch_size = preprocessing, batch_size

    def __call__(self, block: pa.Table) -> pa.Table:
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
            "embed_seconds": constant_column(seconds, rows),
        }.items():
            table = table.append_column(name, column)
        return table


def _pixels(block: pa.Table, preprocessing: Preprocessing) -> np.ndarray:
    """The block's pictures as an array, without copying where the block is in one piece."""
    flat = block["pixels"].combine_chunks().flatten().to_numpy(zero_copy_only=True)
    return flat.reshape(block.num_rows, *preprocessing.shape)
