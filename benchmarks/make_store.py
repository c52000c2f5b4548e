"""Write a store of known truth, ImageNet-sized if asked: which dimensions are normal is chosen, not estimated.

Every dimension is of one kind for all classes; ``truth.json`` in the store names them. Rows are drawn per class from a
separate seed, so the same options give the same bytes on any number of processes.

    python benchmarks/make_store.py --classes 1000 --dimensions 1280 --per-class 1280 --out STORE
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from typing import Any

import numpy as np
import pyarrow as pa

from ghost_ray.files import OutputFolder, join, write_json
from ghost_ray.files.manifest import Data, Network, library_versions
from ghost_ray.rows import Head
from ghost_ray.store import (
    ClusteredWriter,
    RowFile,
    StoreManifest,
    finish_store,
    hash_keys,
    row_schema,
    to_table,
    write_head,
)

KINDS = ("normal", "skewed", "heavy", "bimodal", "constant")
_TASK_BYTES = 64 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--dimensions", type=int, default=1280)
    parser.add_argument("--per-class", type=int, default=1280, help="rows per class")
    parser.add_argument("--out", required=True)
    parser.add_argument("--accuracy", type=float, default=0.95, help="share of rows whose prediction is the label")
    parser.add_argument(
        "--shares", type=float, nargs=5, metavar=tuple(KINDS), default=(0.96, 0.01, 0.01, 0.01, 0.01),
        help="share of the dimensions of each kind",
    )  # fmt: skip
    parser.add_argument("--offset", type=float, default=0.0, help="added to every value")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--overwrite", action="store_true")
    options = parser.parse_args()
    start = time.perf_counter()
    result = make_store(**vars(options))
    print(json.dumps({**result, "seconds": round(time.perf_counter() - start, 2)}))


def make_store(
    out: str,
    classes: int,
    dimensions: int,
    per_class: int,
    accuracy: float = 0.95,
    shares: tuple[float, ...] = (0.96, 0.01, 0.01, 0.01, 0.01),
    offset: float = 0.0,
    seed: int = 0,
    processes: int = 1,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write the store and return its size; ``shares`` follow the order of ``KINDS``."""
    kinds = _kinds(dimensions, shares, seed)
    with OutputFolder(out, overwrite=overwrite) as output:
        step = max(1, _TASK_BYTES // (4 * dimensions * max(1, per_class)))
        tasks = [
            (output.staging, first, min(first + step, classes), classes, per_class, accuracy, kinds, offset, seed)
            for first in range(0, classes, step)
        ]
        if processes > 1:
            with multiprocessing.get_context("spawn").Pool(processes) as pool:
                written = pool.starmap(_write_classes, tasks, chunksize=1)
        else:
            written = [_write_classes(*task) for task in tasks]
        mean = np.stack([_location(k, dimensions, seed) for k in range(classes)]) + np.float32(offset)
        bias = -0.5 * np.square(mean, dtype=np.float64).sum(axis=1)
        write_head(output.staging, Head(mean, bias.astype(np.float32)))
        truth = {kind: np.flatnonzero(kinds == i).tolist() for i, kind in enumerate(KINDS)}
        write_json(join(output.staging, "truth.json"), truth)
        settings = {"classes": classes, "dimensions": dimensions, "per_class": per_class, "seed": seed}
        manifest = StoreManifest(
            created=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            config=settings,
            versions=library_versions(),
            network=Network(name="made-up", classes=classes, dimensions=dimensions),
            data=[Data(uri="benchmarks/make_store.py", kind="synthetic", fingerprint=json.dumps(settings))],
            rows=classes * per_class,
            layout="clustered",
            order="hash",
        )
        finish_store(output.staging, manifest, [file for files in written for file in files])
        output.publish()
    rows = classes * per_class
    return {"store": out, "rows": rows, "gigabytes": round(rows * dimensions * 4e-9, 2)}


def _kinds(dimensions: int, shares: tuple[float, ...], seed: int) -> np.ndarray:
    """Kind of each dimension, [D] index into ``KINDS``, in the shares asked for."""
    if len(shares) != len(KINDS) or min(shares) < 0 or not sum(shares) > 0:
        raise SystemExit(f"--shares needs {len(KINDS)} non-negative numbers")
    ends = np.rint(np.cumsum(shares) / sum(shares) * dimensions).astype(int)
    kinds = np.searchsorted(ends, np.arange(dimensions), side="right")
    return np.random.default_rng(seed).permutation(kinds)


def _location(k: int, dimensions: int, seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 1, k]).standard_normal(dimensions, dtype=np.float32)


def _write_classes(
    folder: str,
    first: int,
    stop: int,
    classes: int,
    per_class: int,
    accuracy: float,
    kinds: np.ndarray,
    offset: float,
    seed: int,
) -> list[RowFile]:
    writer = ClusteredWriter(folder, f"part-{first:06d}", row_schema(len(kinds)))
    for k in range(first, stop):
        rng = np.random.default_rng([seed, 2, k])
        embedding = _draw(rng, per_class, kinds)
        embedding += _location(k, len(kinds), seed) + np.float32(offset)
        label = np.full(per_class, k, np.int32)
        wrong = rng.random(per_class) >= accuracy
        pred = np.where(wrong, (k + 1) % classes, k)
        key = pa.array([f"{k:06d}/{row:06d}" for row in range(per_class)])
        key = key.take(pa.array(np.argsort(hash_keys(key))))  # as in a store that was extracted
        writer.write(to_table(key, label, pred, embedding))
    return writer.close()


def _draw(rng: np.random.Generator, rows: int, kinds: np.ndarray) -> np.ndarray:
    """Samples [rows, D] with each column of its kind, about zero, spread about one."""
    z = rng.standard_normal((rows, len(kinds)), dtype=np.float32)
    skewed, heavy, bimodal, constant = (np.flatnonzero(kinds == i) for i in range(1, 5))
    z[:, skewed] = np.exp(0.5 * z[:, skewed])
    z[:, heavy] *= np.exp(0.125 * np.square(z[:, heavy]))
    side = rng.integers(0, 2, (rows, len(bimodal)), dtype=np.int8)
    z[:, bimodal] = 0.4 * z[:, bimodal] + (2 * side - 1).astype(np.float32)
    z[:, constant] = 0.0
    return z


if __name__ == "__main__":
    main()
