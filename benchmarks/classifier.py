"""What does open-set recognition cost a service? OpenSetClassifier against the bare network.

    python benchmarks/classifier.py [--model resnet50] [--batch 8] [--rounds 10]

Weights are random, which changes no timing. Both run in turn on the same images. Prints one JSON object: `overhead`,
the share of the network's time that prediction, γ and acceptance add (of the best runs), and the same of processor
time, which a busy machine does not distort.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import timm
import torch

from ghost_ray import OpenSetClassifier
from ghost_ray.backbone import load_backbone
from ghost_ray.gaussians import Gaussians


def best_of(sides: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Best seconds of each side, run in turn."""
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for name, side in sides.items():
            start = clock()
            side()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            best[name] = min(best[name], clock() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", help="timm name")
    parser.add_argument("--batch", type=int, default=8, help="images per forward pass")
    parser.add_argument("--rounds", type=int, default=10, help="runs of each side; the best counts")
    options = parser.parse_args()

    torch.manual_seed(0)
    backbone = load_backbone(timm.create_model(options.model, num_classes=1000))
    shape = (backbone.classes, backbone.dimensions)
    rng = np.random.default_rng(0)
    gaussians = Gaussians(
        mean=rng.standard_normal(shape, dtype=np.float32),
        std=rng.uniform(0.5, 2.0, shape).astype(np.float32),
        count=np.full(backbone.classes, 1280),
    )
    classifier = OpenSetClassifier(backbone.body, backbone.linear(), gaussians, threshold=0.0).to(backbone.device)
    images = torch.randn(options.batch, *backbone.input_size, device=backbone.device)
    embedding = backbone.body(images)
    tail = OpenSetClassifier(torch.nn.Identity(), backbone.linear(), gaussians, threshold=0.0).to(backbone.device)
    sides: dict[str, Callable[[], object]] = {
        "network": lambda: classifier.head(classifier.body(images)),
        "classifier": lambda: classifier(images),
        "head": lambda: classifier.head(embedding),
        "head_and_ghost": lambda: tail(embedding),
    }
    with torch.inference_mode():
        best_of(sides, 2, time.perf_counter)
        wall = best_of(sides, options.rounds, time.perf_counter)
        busy = best_of(sides, options.rounds, time.process_time)
    print(
        json.dumps(
            {
                "overhead": round((wall["head_and_ghost"] - wall["head"]) / wall["network"], 5),
                "overhead_processor_time": round((busy["head_and_ghost"] - busy["head"]) / busy["network"], 5),
                "whole_vs_network": round(wall["classifier"] / wall["network"] - 1, 5),
                "seconds": {name: round(value, 6) for name, value in wall.items()},
                "device": str(backbone.device),
            }
        )
    )


if __name__ == "__main__":
    main()
