"""How extraction scales with devices: the forward pass is a fixed wait, so that many devices fit on few cores.

    python benchmarks/scale.py [--devices 1 2 4 8 16] [--wait 0.5] [--batch-size 64]

What is simulated: each device is a logical GPU with an actor of its own in which a batch takes ``wait`` seconds and
no CPU. The default, 128 images in a second, is about a ViT-H on a data-centre GPU. What is not: everything
else. The images are listed, read, decoded, cropped, sent to the actors, embedded in 1,280 dimensions, written and
checkpointed by the job's own stream, in the blocks that the job itself would choose. They are small (36×36) because
decoding photographs for 16 such devices takes about eight cores; a cluster has them, a benchmark's machine may not.

What is measured: the batches each device finishes while every device is at work, from when the last one has done a
block's worth of batches to when the first one has done its last. No device begins before all of them are started. A
device waits where the stages before or after it do not keep up, and every image is in the files at the end. Prints
one JSON object: ``images_per_second`` by number of devices, and ``efficiency``, the same as a share of the ideal,
devices × batch size / wait.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import tiny

from ghost_ray.config import ExtractConfig
from ghost_ray.extract.pipeline import MAX_BLOCK_ROWS, rows_per_block, stream
from ghost_ray.extract.plan import Plan, make_plan
from ghost_ray.extract.pool import plan_pool
from ghost_ray.extract.resume import block_files
from ghost_ray.extract.tally import tallying


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--wait", type=float, default=0.5, help="seconds a batch takes")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=8, help="for each device")
    options = parser.parse_args()
    os.environ[tiny.WAIT] = str(options.wait)
    with tempfile.TemporaryDirectory() as folder:
        config = ExtractConfig(
            data=f"{folder}/images",
            model="tiny:device",
            batch_size=options.batch_size,
            gpus_per_actor=1,
            out=f"{folder}/store",
        )
        rates = {}
        tiny.write_images(Path(config.data), max(options.devices) * options.blocks * MAX_BLOCK_ROWS)
        plan = make_plan(config)
        with contextlib.redirect_stdout(sys.stderr):  # Ray wonders there about so many workers
            for devices in options.devices:
                rates[devices] = steady_rate(plan, config, devices, options.blocks, f"{folder}/{devices}")
    ideal = options.batch_size / options.wait
    print(
        json.dumps(
            {
                "cores": len(os.sched_getaffinity(0)),
                "batch_size": options.batch_size,
                "wait": options.wait,
                "images_per_second": {str(devices): round(rate, 1) for devices, rate in rates.items()},
                "efficiency": {str(devices): round(rate / (devices * ideal), 3) for devices, rate in rates.items()},
            }
        )
    )


def steady_rate(plan: Plan, config: ExtractConfig, devices: int, blocks: int, folder: str) -> float:
    """Images that the devices finish in a second while all of them are at work."""
    import ray
    import ray.data

    log, staging = Path(folder) / "log", f"{folder}/staging"
    log.mkdir(parents=True)
    os.environ[tiny.LOG] = str(log)
    cores = len(os.sched_getaffinity(0))
    rows = rows_per_block(plan.items.num_rows, config.batch_size, plan.preprocessing.bytes, cores)
    items = plan.items.slice(0, devices * blocks * rows)
    ray.init(address="local", num_cpus=cores, num_gpus=devices, include_dashboard=False, log_to_driver=False)
    try:
        pool = plan_pool(config, plan.demand, items.num_rows, rows, may_grow=False)
        ray.data.DataContext.get_current().wait_for_min_actors_s = 600
        with tallying(0, items.num_rows) as (reporter, _):
            stream(plan, items, rows, pool, config.batch_size, staging, reporter)
    finally:
        ray.shutdown()
    assert len(block_files(staging)) * rows == items.num_rows
    finished = []
    for file in log.iterdir():
        batches = [line.split() for line in file.read_text().splitlines()]
        times = [float(end) for end, images in batches if int(images) == config.batch_size]
        finished.append(np.sort(times)[rows // config.batch_size - 1 :])
    assert len(finished) == devices
    # What is written comes in bursts of a block, so it is the batches that are counted, device by device.
    begun, ended = max(times[0] for times in finished), min(times[-1] for times in finished)
    steady = [times[(times >= begun) & (times <= ended)] for times in finished]
    return float(sum((len(times) - 1) * config.batch_size / (times[-1] - times[0]) for times in steady))


if __name__ == "__main__":
    main()
