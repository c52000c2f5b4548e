"""How soon the first of very many images is embedded, and the driver's memory by then.

    python benchmarks/plan.py [--images 14200000] [--parts 1420] [--delay 0.03] [--done 500000] [--kinds webdataset …]
    python benchmarks/plan.py --to-the-end 1000000

Tiny images in WebDataset shards, in Parquet files (one file of each under as many names as there are shards) and in an
image list, on a local disk and on an S3 endpoint that answers after ``delay`` seconds. ``ghost-ray extract`` is started
on a running local Ray, watched until its first block is written, and killed. Prints one JSON object: ``sources`` by
kind and place with ``first_block_seconds``, from the start of the command, and ``driver_mib``, its largest resident
set. With ``--done`` also ``resumed``: the same after so many images of the local shards, whose blocks are written
beforehand. With ``--to-the-end`` instead: so many images in shards, to the end, the driver killed twice on the way;
``rows``, ``keys_once`` and the largest process.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import mirrors
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import tiny
from PIL import Image

from ghost_ray.config import ExtractConfig
from ghost_ray.files import OutputFolder
from ghost_ray.jobs.extract.blocks import Block, BlockWriter, block_names, block_schema, remaining_work
from ghost_ray.jobs.extract.listing import MAX_BLOCK_ROWS
from ghost_ray.jobs.extract.plan import make_plan
from ghost_ray.jobs.extract.resume import claim
from ghost_ray.store import Store, hash_keys, to_table

KINDS = ("webdataset", "parquet", "list")
CLASSES = 10
_LIMIT_SECONDS = 600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=14_200_000)
    parser.add_argument("--parts", type=int, default=1420)
    parser.add_argument("--delay", type=float, default=0.03)
    parser.add_argument("--done", type=int, default=500_000)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--to-the-end", type=int, metavar="IMAGES")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    os.environ |= {tiny.CLASSES: str(CLASSES), "RAY_IGNORE_UNHANDLED_ERRORS": "1"}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        if options.to_the_end:
            found = to_the_end(Path(folder), options.to_the_end)
        else:
            found = first_blocks(Path(folder), options)
    print(json.dumps({"cores": len(os.sched_getaffinity(0)), **found}))


def first_blocks(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    each = options.images // options.parts
    sources: dict[str, dict[str, float]] = {}
    resumed = None
    for kind in options.kinds:
        data, extra, listed, patterns = WRITERS[kind](folder / kind, options.parts, each)
        near, far = folder / f"{kind}-near", folder / f"{kind}-far"
        with running_ray({}) as address:
            sources[kind] = until_a_block(words_of(data, extra, near, address), near)
            if options.done and kind == "webdataset":
                pretend(data, folder / "resumed", options.done)
                resumed = until_a_block(words_of(data, extra, folder / "resumed", address), folder / "resumed")
        remote = [word.replace(str(folder / kind), f"s3://{mirrors.BUCKET}") for word in (data, *extra)]
        with mirrors.serving(listed, patterns, options.delay) as environment, running_ray(environment) as address:
            words = words_of(remote[0], remote[1:], far, address)
            sources[f"{kind}, {1000 * options.delay:.0f} ms"] = until_a_block(words, far, environment)
    sizes = {"images": each * options.parts, "parts": options.parts, "done": options.done}
    return {**sizes, "sources": sources, "resumed": resumed}


def words_of(data: str, extra: list[str], out: Path, address: str) -> list[str]:
    words = ["extract", "--data", data, "--model", "tiny:device", "--out", str(out), "--address", address]
    return [*words, "--actors", "1", "--gpus-per-actor", "0", *extra]


@contextlib.contextmanager
def running_ray(environment: dict[str, str]) -> Iterator[str]:
    """A local Ray with every core; gives its address."""
    before = dict(os.environ)
    os.environ |= environment
    import ray

    try:
        ray.init(address="local", include_dashboard=False, log_to_driver=False)
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()
        os.environ.clear()
        os.environ |= before


def until_a_block(words: list[str], out: Path, environment: dict[str, str] | None = None) -> dict[str, float]:
    """Start a command, wait for a block that was not there before, and kill it."""
    staging = out.parent / f".{out.name}.partial"
    before = len(block_names(str(staging)))
    start, peak = time.perf_counter(), 0.0
    with tempfile.TemporaryFile("w+") as said:
        command = [sys.executable, "-m", "ghost_ray", *words]
        process = subprocess.Popen(command, stdout=said, stderr=said, env=os.environ | (environment or {}))
        try:
            while len(block_names(str(staging))) == before:
                if process.poll() is not None or time.perf_counter() - start > _LIMIT_SECONDS:
                    said.seek(0)
                    raise SystemExit(said.read())
                peak = max(peak, _resident(process.pid))
                time.sleep(0.1)
            seconds = time.perf_counter() - start
            for _ in range(20):
                peak = max(peak, _resident(process.pid))
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
    found = {"first_block_seconds": round(seconds, 2), "driver_mib": round(peak)}
    print(" ".join(words), found)
    return found


def _resident(pid: int) -> float:
    try:
        return float(psutil.Process(pid).memory_info().rss / 2**20)
    except psutil.NoSuchProcess:
        return 0.0


# ---- the sources


def contents() -> list[bytes]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        buffer = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (36, 36, 3), np.uint8)).save(buffer, "jpeg")
        found.append(buffer.getvalue())
    return found


Written = tuple[str, list[str], mirrors.Listed, mirrors.Patterns]


def write_shards(root: Path, parts: int, each: int) -> Written:
    root.mkdir()
    pictures, first = contents(), root / f"{0:05d}.tar"
    with tarfile.open(first, "w") as tar:
        for number in range(each):
            for suffix, data in (("jpg", pictures[number % 100]), ("cls", str(number % CLASSES).encode())):
                entry = tarfile.TarInfo(f"{number:07d}.{suffix}")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return _under_many_names(first, parts)


def write_tables(root: Path, parts: int, each: int) -> Written:
    root.mkdir()
    pictures, first = contents(), root / f"{0:05d}.parquet"
    images = [{"bytes": pictures[number % 100], "path": ""} for number in range(each)]
    table = pa.table({"image": images, "label": np.arange(each) % CLASSES})
    pq.write_table(table, first, row_group_size=1000)
    return _under_many_names(first, parts)


def _under_many_names(first: Path, parts: int) -> Written:
    for number in range(1, parts):
        os.link(first, first.with_name(f"{number:05d}{first.suffix}"))
    names = [f"{number:05d}{first.suffix}" for number in range(parts)]
    return str(first.parent), [], dict.fromkeys(names, str(first)), []


def write_lines(root: Path, parts: int, each: int) -> Written:
    """A line ``millions/hundreds/ones.jpg`` for each image; the folders are links to one with a hundred pictures."""
    (root / "images").mkdir(parents=True)
    (root / "hundreds").mkdir()
    for number, picture in enumerate(contents()):
        (root / "images" / f"{number:02d}.jpg").write_bytes(picture)
        (root / "hundreds" / f"{number:02d}").symlink_to("../images")
    for number in range(-(-each * parts // 10_000)):
        (root / f"{number:06d}").symlink_to("hundreds")
    with (root / "all.txt").open("w") as lines:
        for number in range(each * parts):
            place = f"{number // 10_000:06d}/{number % 10_000 // 100:02d}/{number % 100:02d}"
            lines.write(f"{place}.jpg {number % CLASSES}\n")
    listed, pattern = {"all.txt": str(root / "all.txt")}, r"\d{6}/\d\d/\d\d\.jpg"
    return str(root / "all.txt"), [], listed, [(pattern, str(root / "images" / "00.jpg"))]


WRITERS: dict[str, Callable[[Path, int, int], Written]] = {
    "webdataset": write_shards,
    "parquet": write_tables,
    "list": write_lines,
}


# ---- what was done before


def pretend(data: str, out: Path, done: int) -> None:
    """Leave the work folder of a run that was killed when the first ``done`` images were embedded."""
    config = ExtractConfig(data=data, model="tiny:device", out=str(out), actors="1")
    plan = make_plan(config)
    with OutputFolder(config.out, resume=True) as output:
        claim(output, config, plan)
        lister = plan.lister(output.staging, MAX_BLOCK_ROWS)
        write = BlockWriter(block_schema(plan.network.dimensions), output.staging, "before")
        remaining, written = remaining_work(plan.groups, output.staging, retry_reads=True)
        for work in remaining:
            if written >= done:
                break
            for block in lister.blocks(work):
                write(block, _computed(block, plan.network.dimensions), 1)
                written += block.images.num_rows


def _computed(block: Block, dimensions: int) -> pa.Table:
    images, rows = block.images, block.images.num_rows
    embedding = np.zeros((rows, dimensions), np.float32)
    table = to_table(images["key"].combine_chunks(), images["label"].to_numpy(), np.zeros(rows, np.int32), embedding)
    table = table.append_column("position", images["position"])
    table = table.append_column("failed", pa.array(np.zeros(rows, bool)))
    for name in ("stage", "error"):
        table = table.append_column(name, pa.nulls(rows, pa.string()))
    return table


# ---- to the end


def to_the_end(folder: Path, images: int) -> dict[str, object]:
    """So many images in shards of ten thousand; the driver is killed after a third of them, and after two thirds."""
    each = min(10_000, images)
    data, _, _, _ = write_shards(folder / "shards", images // each, each)
    out, start, largest = folder / "store", time.perf_counter(), 0.0
    with running_ray({}) as address:
        for share in (1 / 3, 2 / 3, 2.0):
            largest = max(largest, _run_until(words_of(data, [], out, address), out, share * images))
    store = Store.open(str(out))
    keys = [store.read_small(groups, "key")["key"].combine_chunks() for groups in store.row_groups()]
    hashes = np.concatenate([hash_keys(key) for key in keys])
    return {
        "images": images // each * each,
        "rows": store.rows,
        "keys_once": bool(len(np.unique(hashes)) == images // each * each == store.rows),
        "seconds": round(time.perf_counter() - start, 1),
        "largest_process_mib": round(largest),
    }


def _run_until(words: list[str], out: Path, images: float) -> float:
    """Run until so many images are in blocks, then kill; returns the MiB of the largest process, shared pages apart."""
    staging, largest = out.parent / f".{out.name}.partial", 0.0
    process = subprocess.Popen([sys.executable, "-m", "ghost_ray", *words], stdout=sys.stderr)
    try:
        while process.poll() is None and sum(name.rows for name in block_names(str(staging))) < images:
            for each in [psutil.Process(process.pid), *psutil.Process().children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    largest = max(largest, each.memory_full_info().uss / 2**20)
            time.sleep(1)
    finally:
        process.kill()
    if process.wait() > 0:
        raise SystemExit("the command failed")
    return largest


if __name__ == "__main__":
    main()
