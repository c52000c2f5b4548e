"""How fast is GHOST's score? Against a loop over classes with masks, and against the plain numpy expression.

    python benchmarks/score.py [--rows 50000] [--dimensions 1280] [--classes 1000] [--threads N]

Prints one JSON object: `vs_class_loop` (how many times faster than the authors' way: a mask a class, all classes'
scores in one matrix), `vs_bare_class_loop` (the same without the matrix), `vs_numpy` (than the plain expression, with
the rows of μ and σ gathered), the best seconds of each side, and `worst_relative_error` of γ against the loop's
float64 result.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import numpy as np
from numpy.typing import NDArray

from ghost_ray.gaussians import Gaussians, gamma, z_sum


def class_loop(
    x: NDArray[np.float32], logit: NDArray[np.float32], pred: NDArray[np.int64], model: Gaussians
) -> NDArray[np.float64]:
    """Score one class after the other, each picked out of all rows by a mask."""
    score = np.empty(len(x))
    for k in range(len(model.mean)):
        mask = pred == k
        z = np.abs(x[mask].astype(np.float64) - model.mean[k]) / model.std[k]
        score[mask] = logit[mask] / z.sum(axis=1)
    return score


def class_loop_with_matrix(
    x: NDArray[np.float32], logit: NDArray[np.float32], pred: NDArray[np.int64], model: Gaussians
) -> NDArray[np.float64]:
    """Do the same as the authors' code does: into a zero-filled matrix, a column a class, then the row's largest."""
    matrix = np.zeros((len(x), len(model.mean)))
    for k in range(len(model.mean)):
        mask = pred == k
        z = np.abs(x[mask].astype(np.float64) - model.mean[k]) / model.std[k]
        matrix[mask, k] = logit[mask] / z.sum(axis=1)
    return matrix[np.arange(len(x)), matrix.argmax(axis=1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000, help="samples to score")
    parser.add_argument("--dimensions", type=int, default=1280, help="D of the embedding")
    parser.add_argument("--classes", type=int, default=1000, help="K of the network")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of the kernel")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each side; the best counts")
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    shape = (options.classes, options.dimensions)
    model = Gaussians(
        mean=rng.standard_normal(shape, dtype=np.float32),
        std=rng.uniform(0.5, 2.0, size=shape).astype(np.float32),
        count=np.full(options.classes, 1280),
    )
    x = rng.standard_normal((options.rows, options.dimensions), dtype=np.float32)
    logit = rng.uniform(1, 20, size=options.rows).astype(np.float32)
    pred = rng.integers(0, options.classes, size=options.rows)

    def kernel() -> NDArray[np.float64]:
        s = z_sum(x, pred, model.mean, model.inverse_std, threads=options.threads)
        return gamma(logit, s, model.present[pred])

    sides = {
        "kernel": kernel,
        "numpy": lambda: logit / (np.abs(x - model.mean[pred]) / model.std[pred]).sum(axis=1),
        "bare_class_loop": lambda: class_loop(x, logit, pred, model),
        "class_loop": lambda: class_loop_with_matrix(x, logit, pred, model),
    }
    error = float(np.max(np.abs(kernel() / sides["class_loop"]() - 1)))
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(options.rounds):
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    print(
        json.dumps(
            {
                "vs_class_loop": round(best["class_loop"] / best["kernel"], 2),
                "vs_bare_class_loop": round(best["bare_class_loop"] / best["kernel"], 2),
                "vs_numpy": round(best["numpy"] / best["kernel"], 2),
                "seconds": {name: round(value, 5) for name, value in best.items()},
                "worst_relative_error": error,
                "threads": options.threads,
            }
        )
    )


if __name__ == "__main__":
    main()
