"""Sorting rows by class, compared with Ray Data's own sort of the same rows on the same cluster.

    python benchmarks/arrange.py [--rows 14200000] [--classes 21841] [--dimensions 64] [--skip-ray-data] [--limit 300]

Writes blocks as an extraction leaves them, once as class folders give them (one label per block) and once as shuffled
shards do (all labels in every block), starts a local Ray and arranges each into a store's files. Prints one JSON
object; for each kind ``seconds``, ``driver_mib`` (the largest resident set of this process, imports included) and
``task_mib`` (the largest of a worker, without pages of files, which the kernel takes back when it needs them), beside
``reserved_mib``, what a task asks Ray for. ``ray_data_seconds`` is ``read_parquet().sort().write_parquet()`` of the
same rows in Parquet files, which
neither drops repeated keys nor ends row groups at class borders; null where it was not done within ``--limit`` seconds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.cluster import ray_session
from ghost_ray.cluster.sort import arrange
from ghost_ray.config import RayJobConfig
from ghost_ray.config.limits import ARRANGE_MEMORY
from ghost_ray.store import open_rows, row_schema, to_table, write_rows

BLOCK_ROWS = 8192


def write_block(path: str, first: int, label: np.ndarray, dimensions: int) -> str:
    """A block of made-up rows whose keys are numbers from ``first`` on."""
    embedding = np.random.default_rng(first).standard_normal((len(label), dimensions), dtype=np.float32)
    keys = pa.array([f"{row:010d}" for row in range(first, first + len(label))])
    rows = to_table(keys, label, label, embedding)
    with pa.OSFile(path, "wb") as file:
        write_rows(file, rows, rows.schema)
    return path


def as_parquet(path: str) -> str:
    """The same block as a Parquet file, which Ray Data reads."""
    with open_rows(path) as rows:
        pq.write_table(rows.read_all(), f"{path}.parquet", compression="none", use_dictionary=False)
    return f"{path}.parquet"


def write_blocks(folder: Path, kind: str, rows: int, classes: int, dimensions: int) -> list[str]:
    """All rows of a kind; the labels are the same ones, in another order."""
    folder.mkdir()
    label = np.sort(np.random.default_rng(0).integers(0, classes, rows)).astype(np.int32)
    if kind == "folders":
        borders = [0, *(np.flatnonzero(np.diff(label)) + 1).tolist(), rows]
        cuts = [(a, min(a + BLOCK_ROWS, b)) for start, b in pairwise(borders) for a in range(start, b, BLOCK_ROWS)]
    else:
        label = np.random.default_rng(1).permutation(label)
        cuts = [(a, min(a + BLOCK_ROWS, rows)) for a in range(0, rows, BLOCK_ROWS)]
    with ProcessPoolExecutor() as pool:
        paths = [str(folder / f"{n:06d}.arrow") for n in range(len(cuts))]
        firsts, labels = [a for a, _ in cuts], [label[a:b] for a, b in cuts]
        return list(pool.map(write_block, paths, firsts, labels, [dimensions] * len(cuts), chunksize=32))


class Watch:
    """The largest memory of this process and of any worker while a block runs."""

    def __enter__(self) -> Watch:
        self.driver = self.task = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        me = psutil.Process()
        while not self._over.wait(0.05):
            self.driver = max(self.driver, me.memory_info().rss)
            for child in me.children(recursive=True):
                try:
                    if child.cmdline()[:1] and child.cmdline()[0].startswith("ray::write_"):
                        memory = child.memory_info()
                        self.task = max(self.task, memory.rss - memory.shared)
                except (psutil.NoSuchProcess, psutil.ZombieProcess):
                    continue


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, and what it returns."""
    start = time.perf_counter()
    result = work()
    return round(time.perf_counter() - start, 1), result


def measure(inputs: list[str], folder: Path, rows: int, classes: int, dimensions: int) -> dict[str, float | None]:
    """Arrange blocks on the Ray that is joined."""
    out = folder / "out"
    with Watch() as watch:
        seconds, files = timed(lambda: arrange(inputs, str(out), row_schema(dimensions), classes))
    assert sum(file.rows for file in files) == rows
    shutil.rmtree(out)
    return {
        "blocks": len(inputs),
        "seconds": seconds,
        "driver_mib": round(watch.driver / 2**20),
        "task_mib": round(watch.task / 2**20),
    }


def with_ray_data(inputs: list[str], folder: Path, limit: float) -> float | None:
    """Seconds of Ray Data's sort of the same blocks into files; None if it takes longer than ``limit``."""
    import ray

    with ProcessPoolExecutor() as pool:
        inputs = list(pool.map(as_parquet, inputs, chunksize=32))
    out, address = folder / "sorted", ray.get_runtime_context().gcs_address
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=sort, args=(there, address, inputs, str(out)))
    process.start()
    there.close()
    seconds: float | None = here.recv() if here.poll(limit) else None
    process.kill()
    process.join()
    shutil.rmtree(out, ignore_errors=True)
    return seconds


def sort(to: Connection, address: str, inputs: list[str], out: str) -> None:
    """The sort, in a separate process, so that it can be stopped."""
    import ray

    sys.stdout = sys.stderr  # Ray's warnings must not come between the lines of the result
    ray.init(address=address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    to.send(timed(lambda: ray.data.read_parquet(inputs).sort(["label", "key"]).write_parquet(out))[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=14_200_000)
    parser.add_argument("--classes", type=int, default=21_841)
    parser.add_argument("--dimensions", type=int, default=64)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--folder", default=None, help="where to write, by default among the temporary files")
    parser.add_argument("--skip-ray-data", action="store_true")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which Ray Data's sort is ended")
    options = parser.parse_args()
    shape = (options.rows, options.classes, options.dimensions)
    kinds: dict[str, dict[str, float | None]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        blocks = {kind: write_blocks(folder / kind, kind, *shape) for kind in ("folders", "shards")}
        with ray_session(RayJobConfig(num_cpus=options.cores)):
            for kind, inputs in blocks.items():
                kinds[kind] = measure(inputs, folder, *shape)
                print(json.dumps({kind: kinds[kind]}), file=sys.stderr, flush=True)
            if not options.skip_ray_data:
                for kind, inputs in blocks.items():
                    kinds[kind]["ray_data_seconds"] = with_ray_data(inputs, folder, options.limit)
    print(
        json.dumps(
            {
                "rows": options.rows,
                "classes": options.classes,
                "dimensions": options.dimensions,
                "gigabytes": round(options.rows * options.dimensions * 4e-9, 2),
                "cores": options.cores,
                "reserved_mib": ARRANGE_MEMORY >> 20,
                "ray_data_limit": None if options.skip_ray_data else options.limit,
                "kinds": kinds,
            }
        )
    )


if __name__ == "__main__":
    main()
