"""Waiting times on one machine: importing, evaluating, extracting a few images, and ten lines on arrays.

    python benchmarks/small.py [--rows 50000] [--dimensions 1280] [--classes 1000] [--images 500]

Every command is a separate process, from its first import to its last byte, without a cluster. Prints one JSON object:

import_seconds      `ghost-ray import` of rows × dimensions and their logits as .npy
evaluate_seconds    `ghost-ray evaluate` of six methods, fitted on these rows, on as many knowns and as many unknowns
extract_one_seconds `ghost-ray extract` of one image with a small network
extract_seconds     the same of so many images of 64 × 64 pixels
arrays_seconds      fit, score, audit, evaluate and a figure on 5,000 × 64 in one process, after the imports
arrays_with_imports_seconds   the same process from its start to its end
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

METHODS = "ghost,msp,maxlogit,energy,react,scale"
# A first call on few rows compiles and imports; the second is what is measured.
ARRAYS = """
import time
import numpy as np, ghost_ray
rng = np.random.default_rng(0)
weight = rng.standard_normal((10, 64), dtype=np.float32)
def rows(n, spread):
    labels = rng.integers(0, 10, n)
    features = spread * weight[labels] + rng.standard_normal((n, 64), dtype=np.float32)
    return features, labels, features @ weight.T
def all_of_it(n):
    train, test, unknown = rows(n, 1.0), rows(n, 1.0), rows(n, 0.5)
    start = time.perf_counter()
    model = ghost_ray.fit(*train)
    gamma = model.score(test[0], test[2])
    found = ghost_ray.audit(*train)
    sets = {"fit": train, "known": test, "unknown": {"u": unknown[::2]}}
    result = ghost_ray.evaluate(**sets, methods=["ghost", "msp", "knn:k=10"])
    result.to_pandas(), result.plot()
    return time.perf_counter() - start
all_of_it(200)
print(all_of_it(5000))
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--dimensions", type=int, default=1280)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--images", type=int, default=500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = {
            **vars(options),
            **arrays_from_files(folder, options.rows, options.dimensions, options.classes),
            **images(folder, options.images),
            **in_python(folder),
        }
    print(json.dumps(result, indent=2))


def arrays_from_files(folder: Path, rows: int, dimensions: int, classes: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((classes, dimensions), dtype=np.float32)
    np.savez(folder / "head.npz", weight=weight, bias=np.zeros(classes, np.float32))
    seconds = {}
    for number, name in enumerate(("fit", "known", "unknown")):
        label = rng.integers(0, classes, rows)
        features = rng.standard_normal((rows, dimensions), dtype=np.float32)
        features += (0.2 if name == "unknown" else 1.0) * weight[label]
        np.save(folder / f"{name}-x.npy", np.abs(features))
        np.save(folder / f"{name}-z.npy", np.abs(features) @ weight.T)
        np.save(folder / f"{name}-y.npy", label)
        labels = ["--unknown"] if name == "unknown" else ["--labels", f"{name}-y.npy"]
        files = ["--features", f"{name}-x.npy", "--logits", f"{name}-z.npy", "--head", "head.npz"]
        taken = ghost_ray(folder, "import", *files, *labels, "--out", f"store-{name}")
        if number == 0:
            seconds["import_seconds"] = taken
    stores = ["--fit", "store-fit", "--known", "store-known", "--unknown", "u=store-unknown"]
    seconds["evaluate_seconds"] = ghost_ray(folder, "evaluate", *stores, "--methods", METHODS, "--out", "evaluation")
    return seconds


def images(folder: Path, count: int) -> dict[str, float]:
    from safetensors.torch import save_model

    from ghost_ray.demo.digits import network

    rng = np.random.default_rng(0)
    save_model(network(), str(folder / "weights.safetensors"))
    seconds = {}
    for name, number in (("extract_one_seconds", 1), ("extract_seconds", count)):
        place = folder / name
        place.mkdir()
        for index in range(number):
            Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(place / f"{index:04d}.png")
        model = ["--model", "ghost_ray.demo.digits:network", "--weights", "weights.safetensors", "--unknown"]
        seconds[name] = ghost_ray(folder, "extract", "--data", name, *model, "--out", f"store-{name}")
    return seconds


def in_python(folder: Path) -> dict[str, float]:
    start = time.perf_counter()
    ended = subprocess.run([sys.executable, "-c", ARRAYS], cwd=folder, check=True, capture_output=True, text=True)
    whole = time.perf_counter() - start
    return {"arrays_seconds": float(ended.stdout), "arrays_with_imports_seconds": whole}


def ghost_ray(folder: Path, *words: str) -> float:
    """Seconds of a command."""
    start = time.perf_counter()
    ended = subprocess.run([sys.executable, "-m", "ghost_ray", *words], cwd=folder, capture_output=True, text=True)
    if ended.returncode != 0:
        raise SystemExit(ended.stderr)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
