"""How extraction scales with devices and cores, where both may be simulated: many of them fit on few real cores.

    python benchmarks/scale.py [--devices 1 2 4 8 16] [--wait 0.5] [--batch-size 64] [--cores 32 --decode 0.1]

Simulated devices: each is a logical GPU with its own actor, in which a batch takes ``wait`` seconds and no CPU. By
default 128 images per second, about a ViT-H on a data-centre GPU. Simulated cores, with ``--decode``: an image of
224×224 pixels takes that many seconds of one of ``cores`` logical CPUs, and almost none of a real one. Everything else
is real. The images are listed, read, decoded, sent to the actors, embedded in 1,280 dimensions and written by the job's
own stream, in the blocks that the job itself would choose. They are small (36×36) because decoding photographs for 16
such devices takes about eight cores; a cluster has them, a benchmark's machine may not.

Measured is the work that the devices (the cores, if they are the bottleneck) finish while all of them could be busy:
from the start of the last of them until no new work is left. A device waits if the stages before or after it do not
keep up, and every image is in the files at the end. Prints one JSON object: ``images_per_second`` by number of devices;
``efficiency``, the same as a share of the smaller of the two ideals, devices × batch size / wait and cores / decode;
``machine_images_per_second``, what the real cores feed to devices that take no time at all, and
``machine_cpu_ms_per_image``, which processes that takes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import tiny
from cores import LOG, simulated_cores
from cpu_watch import CpuWatch

from ghost_ray.backbone.devices import LOGICAL_GPUS
from ghost_ray.cluster.session import prepare_environment
from ghost_ray.config import ExtractConfig
from ghost_ray.jobs.extract.blocks import block_names, remaining_work
from ghost_ray.jobs.extract.job import make_stages, stream_on_ray
from ghost_ray.jobs.extract.listing import rows_per_block
from ghost_ray.jobs.extract.plan import Plan, list_images, make_plan
from ghost_ray.jobs.extract.pool import plan_pool

REAL_CORES = len(os.sched_getaffinity(0))
_MACHINE_IMAGES = 24_576  # to see what the real cores can feed


@dataclass(frozen=True)
class Work:
    """What one device or core was doing."""

    start: float
    end: float
    images: int
    block: str = "-"  # of a core: its task


@dataclass(frozen=True)
class Log:
    """The work of a run, by device and by the process that represents a core."""

    devices: list[list[Work]]
    cores: list[list[Work]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--wait", type=float, default=0.5, help="seconds per batch")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="of work for each number of devices")
    parser.add_argument("--cores", type=int, default=REAL_CORES, help="logical ones")
    parser.add_argument("--decode", type=float, default=0.0, help="seconds of a logical core per image")
    options = parser.parse_args()
    os.environ[LOGICAL_GPUS] = "1"
    with tempfile.TemporaryDirectory() as folder:
        config = ExtractConfig(
            data=f"{folder}/images",
            model="tiny:device",
            batch_size=options.batch_size,
            gpus_per_actor=1,
            out=f"{folder}/store",
        )
        of_cores = options.cores / options.decode if options.decode else math.inf
        of_devices = {devices: devices * options.batch_size / options.wait for devices in options.devices}
        ideal = {devices: min(of_cores, of_devices[devices]) for devices in options.devices}
        images = {devices: math.ceil(ideal[devices] * options.seconds) for devices in options.devices}
        tiny.write_images(Path(config.data), max(_MACHINE_IMAGES, *images.values()))
        plan = make_plan(config)
        simulated = replace(plan, preprocessing=simulated_cores(options.decode)) if options.decode else plan
        rates = {}
        with contextlib.redirect_stdout(sys.stderr):  # Ray warns there about so many workers
            os.environ[tiny.WAIT] = "0"
            with CpuWatch() as watch:
                (fed,) = run(plan, config, 1, _MACHINE_IMAGES, REAL_CORES, f"{folder}/machine").devices
            fed = fed[len(fed) // 2 :]  # all workers have started by then
            spent = watch.between(fed[0].end, fed[-1].end)
            os.environ[tiny.WAIT] = str(options.wait)
            for devices in options.devices:
                log = run(simulated, config, devices, images[devices], options.cores, f"{folder}/{devices}")
                if of_cores < of_devices[devices]:
                    rates[devices] = steady_rate_of_cores(log.cores, options.cores)
                else:
                    rates[devices] = steady_rate(log.devices, devices)
    print(
        json.dumps(
            {
                "cores": options.cores,
                "real_cores": REAL_CORES,
                "batch_size": options.batch_size,
                "wait": options.wait,
                "decode": options.decode,
                "images_per_second": {str(devices): round(rate, 1) for devices, rate in rates.items()},
                "efficiency": {str(devices): round(rate / ideal[devices], 3) for devices, rate in rates.items()},
                "machine_images_per_second": round(steady_rate([fed], 1), 1),
                "machine_cpu_ms_per_image": {
                    kind: round(1000 * seconds / (options.batch_size * (len(fed) - 1)), 3)
                    for kind, seconds in spent.items()
                },
            }
        )
    )


def run(
    plan: Plan, config: ExtractConfig, devices: int, images: int, cores: int, folder: str, staging: str | None = None
) -> Log:
    """Stream so many images, or as many as there are."""
    import ray
    import ray.data

    log, staging = Path(folder) / "log", staging or f"{folder}/staging"
    log.mkdir(parents=True)
    os.environ[LOG] = str(log)
    images = min(plan.images, images)
    rows = rows_per_block(images, config.batch_size, plan.preprocessing.bytes, cores)
    images = images // rows * rows
    if images < plan.images:
        plan = plan.only(list_images(plan)["key"].combine_chunks().slice(0, images))
    remaining, _ = remaining_work(plan.groups, staging, retry_reads=True)
    prepare_environment()  # as the job does
    ray.init(address="local", num_cpus=cores, num_gpus=devices, include_dashboard=False, log_to_driver=False)
    try:
        pool = plan_pool(config.model_copy(update={"actors": str(devices)}), plan, images, rows)
        ray.data.DataContext.get_current().wait_for_min_actors_s = 600
        stages = make_stages(config, plan, staging, rows, pool)
        for _ in stream_on_ray(stages, remaining, pool, rows * plan.preprocessing.bytes):
            pass
    finally:
        ray.shutdown()
    written = sum(name.rows for name in block_names(staging))
    assert written == images, f"{written} of {images} images were written"
    done = {what: [_read(file) for file in log.glob(f"{what}-*")] for what in ("device", "core")}
    # A device checks its network with a batch of two; only whole batches count as work.
    batches = [[work for work in each if work.images == config.batch_size] for each in done["device"]]
    return Log([each for each in batches if each], done["core"])


def _read(file: Path) -> list[Work]:
    fields = (line.split() for line in file.read_text().splitlines())
    return [Work(float(start), float(end), int(images), block) for start, end, images, block in fields]


def steady_rate(devices: list[list[Work]], count: int) -> float:
    """Images per second of ``count`` devices, from when all have started until one has nothing left to start.

    If fewer have started, the others starved, and the whole time counts.
    """
    begun = sorted(min(work.start for work in each) for each in devices)
    start = begun[count - 1] if len(begun) >= count else begun[0]
    end = min(max(work.end for work in each) for each in devices) if len(begun) >= count else 0.0
    if end <= start:
        end = max(work.start for each in devices for work in each)
    return _rate(devices, start, end)


def steady_rate_of_cores(cores: list[list[Work]], count: int) -> float:
    """Images per second that ``count`` cores decode, from when all are busy until the last block is started.

    A core is a process here, and there may be more of these than cores, one after the other.
    """
    begun = sorted(min(work.start for work in each) for each in cores)
    blocks: dict[str, float] = {}
    for each in cores:
        for work in each:
            blocks[work.block] = min(work.start, blocks.get(work.block, work.start))
    return _rate(cores, begun[count - 1] if len(begun) >= count else begun[0], max(blocks.values()))


def _rate(workers: list[list[Work]], start: float, end: float) -> float:
    inside = sum(work.images * _share(work, start, end) for each in workers for work in each)
    return inside / (end - start) if end > start else 0.0


def _share(work: Work, start: float, end: float) -> float:
    """The part of it between two moments."""
    length = max(work.end - work.start, 1e-9)
    return max(0.0, min(work.end, end) - max(work.start, start)) / length


if __name__ == "__main__":
    main()
