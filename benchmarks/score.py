"""How fast is GHOST's score? Against the authors' loop over classes with masks, and the plain numpy expression.

    python benchmarks/score.py [--rows 50000] [--dimensions 1280] [--classes 1000] [--threads N]

Prints one JSON object with the best seconds of each side and how many times faster the kernel is:

vs_class_loop          than the way of the authors' published code (github.com/Vastlab/GHOST, `norm` and `ReScore`),
                       reimplemented: torch in float32 on all cores, a mask for each class, γ into a zero-filled matrix
                       of rows × classes, out of it by a second loop over classes. Left out in its favour: the argmax
                       over all logits, the Pareto distribution, and a search of the whole matrix for NaN and infinity
                       in every round of the loop
vs_published_loop      the same with that search, reckoned from the time of one round's
vs_bare_class_loop     than a class loop with nothing but the mask and the formula, in float64 as the kernel
vs_float32_class_loop  the same in float32, with two digits fewer
vs_numpy               than the plain expression, with the rows of μ and σ gathered
read_seconds           what it takes to read the embeddings once: no kernel can be faster
worst_relative_error   of γ against the formula in float64
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ghost_ray.gaussians import Gaussians, gamma, z_sum


@dataclass(frozen=True)
class Samples:
    """What is scored: embeddings [N, D], logits [N, K], predictions [N]."""

    x: NDArray[np.float32]
    logits: NDArray[np.float32]
    pred: NDArray[np.int64]
    model: Gaussians

    @classmethod
    def make(cls, rows: int, dimensions: int, classes: int) -> Samples:
        rng = np.random.default_rng(0)
        shape = (classes, dimensions)
        model = Gaussians(
            mean=rng.standard_normal(shape, dtype=np.float32),
            std=rng.uniform(0.5, 2.0, size=shape).astype(np.float32),
            count=np.full(classes, 1280),
        )
        pred = rng.integers(0, classes, size=rows)
        logits = rng.standard_normal((rows, classes), dtype=np.float32)
        logits[np.arange(rows), pred] += 20
        return cls(rng.standard_normal((rows, dimensions), dtype=np.float32), logits, pred, model)

    @property
    def top_logit(self) -> NDArray[np.float32]:
        return self.logits[np.arange(len(self.pred)), self.pred]

    def bare_loop(self, dtype: type[np.floating[Any]]) -> NDArray[Any]:
        """γ by the formula, one class after the other."""
        top_logit, score = self.top_logit, np.empty(len(self.x), dtype)
        mean, std = self.model.mean.astype(dtype, copy=False), self.model.std.astype(dtype, copy=False)
        for k in range(len(mean)):
            mask = self.pred == k
            z = np.abs(self.x[mask] - mean[k]) / std[k]
            score[mask] = top_logit[mask] / z.sum(axis=1)
        return score


def authors_loop(samples: Samples) -> Callable[[], torch.Tensor]:
    """The authors' way on tensors."""
    x, logits, pred = (torch.from_numpy(a) for a in (samples.x, samples.logits, samples.pred))
    mean, std = torch.from_numpy(samples.model.mean), torch.from_numpy(samples.model.std)

    def run() -> torch.Tensor:
        normalised = torch.zeros(logits.shape)
        for k in range(len(mean)):
            mask = pred == k
            distance = ((x[mask] - mean[k]) / std[k]).abs().sum(dim=1)
            normalised[mask, k] = logits[mask, k] / distance
        score = torch.zeros(len(x))
        for k in range(len(mean)):
            score[pred == k] = normalised[pred == k][:, k]
        return score

    return run


def read(x: NDArray[np.float32], threads: int) -> float:
    """Touch every number of an array once."""
    with ThreadPoolExecutor(threads) as pool:
        return float(max(pool.map(np.max, np.array_split(x.ravel(), threads))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000, help="samples to score")
    parser.add_argument("--dimensions", type=int, default=1280, help="D of the embedding")
    parser.add_argument("--classes", type=int, default=1000, help="K of the network")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of the kernel and of torch")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each side; the best counts")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    samples = Samples.make(options.rows, options.dimensions, options.classes)
    x, pred, model, top_logit = samples.x, samples.pred, samples.model, samples.top_logit

    def kernel() -> NDArray[np.float64]:
        s = z_sum(x, pred, model.mean, model.inverse_std, threads=options.threads)
        return gamma(top_logit, s, model.present[pred])

    matrix = torch.zeros(options.rows, options.classes)
    sides: dict[str, Callable[[], object]] = {
        "kernel": kernel,
        "numpy": lambda: top_logit / (np.abs(x - model.mean[pred]) / model.std[pred]).sum(axis=1),
        "bare_class_loop": lambda: samples.bare_loop(np.float64),
        "float32_class_loop": lambda: samples.bare_loop(np.float32),
        "class_loop": authors_loop(samples),
        "search": lambda: matrix.isnan().any() or matrix.isinf().any(),
        "read": lambda: read(x, options.threads),
    }
    error = float(np.max(np.abs(kernel() / samples.bare_loop(np.float64) - 1)))
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(options.rounds):
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    best["published_loop"] = best["class_loop"] + options.classes * best.pop("search")
    read_seconds = best.pop("read")
    print(
        json.dumps(
            {
                **{f"vs_{name}": round(best[name] / best["kernel"], 2) for name in best if name != "kernel"},
                "seconds": {name: round(value, 5) for name, value in best.items()},
                "read_seconds": round(read_seconds, 5),
                "worst_relative_error": error,
                "threads": options.threads,
            }
        )
    )


if __name__ == "__main__":
    main()
