"""Extraction by ghost_ray against a plain timm and DataLoader loop: same network, images, batch size and cores.

    python benchmarks/extract.py [--images 1024] [--model resnet18] [--rounds 3]

Both sides run alternately in one process; each rate is the best of its rounds, in steady state: work before every
worker has finished its first share is not counted. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from timm.data import ImageDataset, create_transform, resolve_model_data_config
from torch.utils.data import DataLoader

from ghost_ray.cluster import cluster_cpus, ray_session
from ghost_ray.config import ExtractConfig
from ghost_ray.jobs.extract.blocks import block_files, remaining_work
from ghost_ray.jobs.extract.job import make_stages, stream_on_ray
from ghost_ray.jobs.extract.listing import rows_per_block
from ghost_ray.jobs.extract.plan import Plan, make_plan
from ghost_ray.jobs.extract.pool import plan_pool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--actors", default=None)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder) / "images", options.images)
        model = timm.create_model(options.model, num_classes=10)
        save_file(model.state_dict(), f"{folder}/weights.safetensors")
        config = ExtractConfig(
            data=f"{folder}/images",
            model=options.model,
            weights=f"{folder}/weights.safetensors",
            batch_size=options.batch_size,
            actors=options.actors,
            unknown=True,
            num_cpus=cores,
            out=f"{folder}/store",
        )
        plain, ours = [], []
        plan = make_plan(config)
        for round_ in range(options.rounds):
            # The best number of loader processes: more of them take cores from the network.
            plain += [plain_rate(model, config, workers) for workers in (1, cores)]
            with ray_session(config):
                ours.append(our_rate(plan, config, f"{folder}/{round_}"))
        print(
            json.dumps(
                {
                    "model": options.model,
                    "images": options.images,
                    "batch_size": options.batch_size,
                    "cores": cores,
                    "plain_images_per_second": round(max(plain), 2),
                    "ghost_ray_images_per_second": round(max(ours), 2),
                    "ratio": round(max(ours) / max(plain), 3),
                }
            )
        )


def write_images(root: Path, count: int) -> None:
    """JPEGs of a common size and of about a photograph's weight."""
    rng = np.random.default_rng(0)
    (root / "all").mkdir(parents=True)
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (48, 64, 3), np.uint8)).resize(
            (500, 375), Image.Resampling.BICUBIC
        )
        coarse.save(root / "all" / f"{number:06d}.jpg", quality=90)


@torch.inference_mode()
def plain_rate(model: Any, config: ExtractConfig, workers: int) -> float:
    """Images per second of a straightforward loop."""
    model = model.eval().to(memory_format=torch.channels_last)
    torch.set_num_threads(config.num_cpus or 1)
    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    loader = DataLoader(ImageDataset(config.data, transform=transform), config.batch_size, num_workers=workers)
    times, vectors, predictions = [], [], []
    for batch, _ in loader:
        embedding = model.forward_head(
            model.forward_features(batch.to(memory_format=torch.channels_last)), pre_logits=True
        )
        vectors.append(embedding)
        predictions.append(model.get_classifier()(embedding).argmax(1))
        times.append((time.perf_counter(), len(batch)))
    return steady_rate(times, skip=2)


def our_rate(plan: Plan, config: ExtractConfig, staging: str) -> float:
    """Images per second of the job's own stream, from the times at which blocks were written."""
    rows = rows_per_block(plan.images, config.batch_size, plan.preprocessing.bytes, cluster_cpus())
    pool = plan_pool(config, plan, plan.images, rows)
    remaining, _ = remaining_work(plan.groups, staging, retry_reads=True)
    stages = make_stages(config, plan, staging, rows, pool)
    for _ in stream_on_ray(stages, remaining, pool, rows * plan.preprocessing.bytes):
        pass
    written = sorted(os.stat(file).st_mtime for file in block_files(staging))
    return steady_rate([(at, rows) for at in written], skip=pool.max_actors)


def steady_rate(finished: list[tuple[float, int]], skip: int) -> float:
    """Rate of what was finished after the first ``skip``; ``finished`` holds (time, images), in order."""
    return sum(images for _, images in finished[skip:]) / (finished[-1][0] - finished[skip - 1][0])


if __name__ == "__main__":
    main()
