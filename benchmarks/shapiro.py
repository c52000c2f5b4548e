"""How fast is the Shapiro–Wilk kernel? One thread, float32, against scipy and against sorting alone.

    python benchmarks/shapiro.py [--dimensions 1280] [--rounds 15]

Prints one JSON object. For each n: microseconds per test of every side, `vs_scipy_loop` and `vs_scipy_axis` (how many
times faster than a loop over `scipy.stats.shapiro`, and than its call with `axis=0`), and `vs_sort` (the kernel's time
as a multiple of `np.sort` along the rows of the same data, transposed and contiguous beforehand, which is the fastest
way to sort it). The same three numbers for n = 1300 are at the top level.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import stats

from ghost_ray.normality import shapiro_wilk

LOOP_COLUMNS = 64  # the loop costs the same for every column, so a few of them are enough


def best_seconds(sides: dict[str, tuple[Callable[[], object], int]]) -> dict[str, float]:
    """Run all sides in turn, each as many rounds as asked, and keep the best time of each."""
    best = dict.fromkeys(sides, float("inf"))
    for turn in range(max(rounds for _, rounds in sides.values())):
        for name, (run, rounds) in sides.items():
            if turn < rounds:
                start = time.perf_counter()
                run()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def measure(n: int, dimensions: int, rounds: int) -> dict[str, float]:
    """Compare the sides on n samples of normal data."""
    x = np.random.default_rng(0).standard_normal((n, dimensions), dtype=np.float32)
    columns = np.ascontiguousarray(x.T)
    few = min(LOOP_COLUMNS, dimensions)
    shapiro_wilk(x)  # compiles, or loads what was compiled
    seconds = best_seconds(
        {
            "kernel": (lambda: shapiro_wilk(x), rounds),
            "sort": (lambda: np.sort(columns, axis=1), rounds),
            "scipy_axis": (lambda: stats.shapiro(x, axis=0), 3),
            "scipy_loop": (lambda: [stats.shapiro(x[:, column]) for column in range(few)], 3),
        }
    )
    tests = {"kernel": dimensions, "sort": dimensions, "scipy_axis": dimensions, "scipy_loop": few}
    each = {name: 1e6 * seconds[name] / tests[name] for name in seconds}
    return {
        "vs_scipy_loop": round(each["scipy_loop"] / each["kernel"], 2),
        "vs_scipy_axis": round(each["scipy_axis"] / each["kernel"], 2),
        "vs_sort": round(each["kernel"] / each["sort"], 3),
        **{f"{name}_us": round(value, 4) for name, value in each.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", type=int, default=1280, help="columns tested at once")
    parser.add_argument("--rounds", type=int, default=15, help="runs of the kernel and of the sort; the best counts")
    options = parser.parse_args()
    by_n = {n: measure(n, options.dimensions, options.rounds) for n in (1300, 50)}
    headline = {key: by_n[1300][key] for key in ("vs_scipy_loop", "vs_scipy_axis", "vs_sort")}
    print(json.dumps({**headline, "dimensions": options.dimensions, **{f"n={n}": by_n[n] for n in by_n}}))


if __name__ == "__main__":
    main()
