"""Extraction from and to a slow object store: how many requests, and whether devices wait for them.

    python benchmarks/object_store.py [--delay 0.03] [--devices 8] [--wait 1.0] [--blocks 6]

An S3 endpoint on loopback, in a separate process, answers every request after ``delay`` seconds. WebDataset shards are
read from it and blocks are written to it by the job's own stream; devices are simulated as in ``scale.py``, 64 images
per second each by default. Prints one JSON object: ``requests_per_block`` by kind, between the first block and the
last, and ``busy``, the share of the time that the devices were busy.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import sys
import tarfile
import tempfile
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import tiny
from scale import REAL_CORES, run, steady_rate

from ghost_ray.backbone.devices import LOGICAL_GPUS
from ghost_ray.config import ExtractConfig
from ghost_ray.files import write_bytes
from ghost_ray.jobs.extract.blocks import block_files
from ghost_ray.jobs.extract.listing import MAX_BLOCK_ROWS
from ghost_ray.jobs.extract.plan import make_plan

_IN_A_SHARD = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--delay", type=float, default=0.03, help="seconds before an answer")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--wait", type=float, default=1.0, help="seconds per batch")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=6, help="for each device")
    options = parser.parse_args()
    os.environ |= {LOGICAL_GPUS: "1", tiny.WAIT: str(options.wait)}
    here, there = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True).start()
    environment, bucket = here.recv()
    os.environ |= environment

    def requests(delay: float) -> Counter[str]:
        here.send(delay)
        answer: Counter[str] = here.recv()
        return answer

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        write_shards(Path(folder), f"s3://{bucket}/shards", options.devices * options.blocks * MAX_BLOCK_ROWS)
        config = ExtractConfig(
            data=f"s3://{bucket}/shards",
            model="tiny:device",
            batch_size=options.batch_size,
            gpus_per_actor=1,
            unknown=True,
            out=f"s3://{bucket}/store",
        )
        plan = make_plan(config)
        before, staging = requests(options.delay), f"s3://{bucket}/staging"
        log = run(plan, config, options.devices, plan.images, REAL_CORES, f"{folder}/run", staging)
        spent = requests(0.0) - before
        blocks = len(block_files(staging))
    ideal = options.devices * options.batch_size / options.wait
    print(
        json.dumps(
            {
                "delay": options.delay,
                "devices": options.devices,
                "wait": options.wait,
                "blocks": blocks,
                "requests_per_block": {method: round(count / blocks, 2) for method, count in sorted(spent.items())},
                "busy": round(steady_rate(log.devices, options.devices) / ideal, 3),
            }
        )
    )


def serve(actor: Connection) -> None:
    """An endpoint with a bucket; a number that it receives is the new delay; it replies with the requests so far."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.object_stores import ObjectStore

    store = ObjectStore()
    os.environ |= store.environment()
    store.make_bucket()
    actor.send((store.environment(), store.bucket))
    with contextlib.suppress(EOFError):
        while True:
            store.delay = actor.recv()
            actor.send(Counter(method for method, _ in store.seen))


def write_shards(folder: Path, uri: str, count: int) -> None:
    """``count`` tiny images in tars below ``uri``."""
    tiny.write_images(folder / "images", min(count, 1000), classes=1)
    contents = [path.read_bytes() for path in sorted((folder / "images").rglob("*.jpg"))]
    for first in range(0, count, _IN_A_SHARD):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for number in range(first, min(first + _IN_A_SHARD, count)):
                entry = tarfile.TarInfo(f"{number:07d}.jpg")
                entry.size = len(contents[number % len(contents)])
                tar.addfile(entry, io.BytesIO(contents[number % len(contents)]))
        write_bytes(f"{uri}/{first // _IN_A_SHARD:04d}.tar", buffer.getvalue())


if __name__ == "__main__":
    main()
