"""How extraction scales with devices: the forward pass is a fixed wait, so that many devices fit on few cores.

    python benchmarks/scale.py [--devices 1 2 4 8 16] [--wait 0.25] [--batch-size 16]

Each simulated device is a logical GPU with an actor of its own. Prints one JSON object: ``efficiency`` by number of
devices is the rate in steady state as a share of the ideal, devices × batch size / wait.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image
from torch import nn

from ghost_ray.config import ExtractConfig
from ghost_ray.extract.pipeline import stream
from ghost_ray.extract.plan import Plan, make_plan
from ghost_ray.extract.pool import plan_pool
from ghost_ray.extract.resume import block_files
from ghost_ray.extract.tally import tallying

WAIT = "GHOST_RAY_SIMULATED_WAIT"


class Device(nn.Module):
    """Stands for a network on a device of its own: the batch takes ``wait`` seconds and no CPU."""

    pretrained_cfg = {
        "input_size": (3, 32, 32),
        "mean": (0.5, 0.5, 0.5),
        "std": (0.5, 0.5, 0.5),
        "crop_pct": 1.0,
        "interpolation": "bilinear",
    }

    def __init__(self, wait: float) -> None:
        super().__init__()
        self.head = nn.Linear(256, 10)
        self._wait = wait

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(self._wait)
        return self.head(batch.flatten(1)[:, :256])


def device() -> nn.Module:
    return Device(float(os.environ[WAIT]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--wait", type=float, default=0.25)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=24, help="blocks of four batches for each device")
    options = parser.parse_args()
    os.environ[WAIT] = str(options.wait)
    rows = 4 * options.batch_size
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder) / "images", max(options.devices) * options.blocks * rows)
        config = ExtractConfig(
            data=f"{folder}/images",
            model="scale:device",
            batch_size=options.batch_size,
            gpus_per_actor=1,
            unknown=True,
            out=f"{folder}/store",
        )
        plan = make_plan(config)
        efficiency = {}
        for devices in options.devices:
            rate = steady_rate(plan, config, devices, devices * options.blocks, rows, f"{folder}/{devices}")
            efficiency[str(devices)] = round(rate * options.wait / (devices * options.batch_size), 3)
    cores = len(os.sched_getaffinity(0))
    print(
        json.dumps({"cores": cores, "batch_size": options.batch_size, "wait": options.wait, "efficiency": efficiency})
    )


def write_images(root: Path, count: int) -> None:
    (root / "all").mkdir(parents=True)
    for number in range(count):
        Image.new("RGB", (36, 36), (number % 256, number // 256 % 256, 0)).save(root / "all" / f"{number:06d}.jpg")


def steady_rate(plan: Plan, config: ExtractConfig, devices: int, blocks: int, rows: int, staging: str) -> float:
    """Images a second between the first quarter of the blocks and the last: no start, no end."""
    import ray

    ray.init(address="local", num_cpus=len(os.sched_getaffinity(0)), num_gpus=devices, include_dashboard=False)
    try:
        pool = plan_pool(config, blocks, may_grow=False)
        items = plan.items.slice(0, blocks * rows)
        with tallying(0, items.num_rows) as (reporter, _):
            stream(plan, items, rows, pool, config.batch_size, staging, reporter)
    finally:
        ray.shutdown()
    written = sorted(os.stat(file).st_mtime_ns / 1e9 for file in block_files(staging))
    first, last = blocks // 4, blocks - devices - 1
    return (last - first) * rows / (written[last] - written[first])


if __name__ == "__main__":
    main()
