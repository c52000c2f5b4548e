"""Common code of the job benchmarks: the job as users start it, and the reading and sorting it is compared with."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import psutil
import pyarrow.parquet as pq

from ghost_ray.store import Store, open_rows


def parse_options(doc: str) -> argparse.Namespace:
    """The options of a benchmark of a job: its store, how many cores, how many repeats."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


@dataclass(frozen=True)
class Job:
    """One run of a command, from its first import to its last byte."""

    seconds: float
    driver_mib: float
    total_mib: float
    output: str


def run_job(command: str, store: str, *options: str, watch_memory: bool = False) -> Job:
    """Run ``ghost-ray COMMAND STORE`` into a temporary folder."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(store))) as folder:
        words = [command, store, "--out", os.path.join(folder, "out"), *options]
        return run_command(words, watch_memory=watch_memory)


def run_command(words: Sequence[str], *, watch_memory: bool) -> Job:
    """Run ``ghost-ray WORDS``.

    Memory is watched only on request, in a separate run, because sampling costs time. A page shared by several
    processes is counted once (the kernel's proportional set size); the driver's figure is its whole resident set.
    """
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        command = [sys.executable, "-m", "ghost_ray", *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
        driver = total = 0.0
        while watch_memory and process.poll() is None:
            seen = _memory(process.pid)
            driver, total = max(driver, seen[0]), max(total, seen[1])
            time.sleep(0.2)
        output, _ = process.communicate()
        seconds = time.perf_counter() - start
        if process.returncode:
            said.seek(0)
            raise SystemExit(said.read())
    return Job(seconds, driver, total, output)


def _memory(pid: int) -> tuple[float, float]:
    """Resident MiB of a process, and proportional MiB of it and all below it."""
    try:
        root = psutil.Process(pid)
        own = root.memory_info().rss
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0, 0.0
    total = 0
    for process in tree:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return own / 2**20, total / 2**20


@dataclass(frozen=True)
class Limit:
    """Seconds that plain reading, and plain sorting of what was read, take on all cores."""

    read: float
    sort: float


def as_parquet(store: Store, folder: str) -> list[str]:
    """Write the rows of a store as Parquet files with the same row groups, uncompressed; returns their paths."""
    paths = []
    for file in store.files:
        paths.append(os.path.join(folder, f"{file.name}.parquet"))
        with (
            open_rows(os.path.join(store.uri, "rows", file.name)) as rows,
            pq.ParquetWriter(paths[-1], rows.schema, compression="none", use_dictionary=False) as writer,
        ):
            for number in range(rows.num_record_batches):
                batch = rows.get_batch(number)
                writer.write_batch(batch, row_group_size=batch.num_rows)
    return paths


def read_and_sort(store: Store, paths: list[str], cores: int, *, sort: bool = True) -> Limit:
    """Read every embedding from Parquet files with pyarrow, and ``np.sort`` each class's columns; a process per core.

    ``paths`` are those of `as_parquet`.
    """
    groups = [file.groups.rows.tolist() for file in store.files]
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        pool.map(_warm_up, range(cores), chunksize=1)
        parts = [(paths[core::cores], groups[core::cores], sort) for core in range(cores)]
        spent = pool.starmap(_read_and_sort, parts, chunksize=1)
    return Limit(max(read for read, _ in spent), max(sorted_ for _, sorted_ in spent))


def _warm_up(_: int) -> None:
    time.sleep(0.5)  # every process gets one


def _read_and_sort(paths: list[str], groups: list[list[int]], sort: bool) -> tuple[float, float]:
    read = sorting = 0.0
    for path, rows in zip(paths, groups, strict=True):
        start = time.perf_counter()
        column = pq.read_table(path, columns=["embedding"], use_threads=False, memory_map=True).column("embedding")
        flat = [chunk.flatten().to_numpy() for chunk in column.chunks]
        read += time.perf_counter() - start
        if not sort:
            continue
        whole = np.concatenate(flat).reshape(-1, column.type.list_size)
        for group in np.split(whole, np.cumsum(rows)[:-1]):
            columns = np.ascontiguousarray(group.T)
            start = time.perf_counter()
            columns.sort(axis=1)
            sorting += time.perf_counter() - start
    return read, sorting
