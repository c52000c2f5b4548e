"""Very many classes: the memory of fit, audit and report, which must not depend on the number of rows.

    python benchmarks/many_classes.py [--classes 21841] [--dimensions 1280] [--per-class 40] [--fewer 4]

Writes a store of made-up rows, runs the three commands on it, each in a separate process and without a cluster, and
does the same with fewer rows in each class. Prints one JSON object: by rows in each class and by command ``seconds``
and ``peak_mib``, the largest resident set of the command's process or of any that it started.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from make_store import make_store


def run(*words: str) -> dict[str, float]:
    """Run a command to its end; its seconds, and the peak of its largest process."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "ghost_ray", *words], stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{words[0]} failed")
    found = {"seconds": round(time.perf_counter() - start, 1), "peak_mib": usage.ru_maxrss >> 10}
    print(words[0], found, file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=21_841)
    parser.add_argument("--dimensions", type=int, default=1280)
    parser.add_argument("--per-class", type=int, default=40)
    parser.add_argument("--fewer", type=int, default=4)
    parser.add_argument("--folder", default=None, help="where to write, by default among the temporary files")
    options = parser.parse_args()
    found: dict[int, dict[str, dict[str, float]]] = {}
    for rows in (options.fewer, options.per_class):
        with tempfile.TemporaryDirectory(dir=options.folder) as place:
            make_store(f"{place}/store", options.classes, options.dimensions, rows, processes=os.cpu_count() or 1)
            found[rows] = {
                "fit": run("fit", f"{place}/store", "--out", f"{place}/model"),
                "audit": run("audit", f"{place}/store", "--out", f"{place}/audit"),
                "report": run("report", f"{place}/model", f"{place}/audit", "--out", f"{place}/report.html"),
            }
    shape = {"classes": options.classes, "dimensions": options.dimensions}
    print(json.dumps({"cores": len(os.sched_getaffinity(0)), **shape, "rows_in_each_class": found}))


if __name__ == "__main__":
    main()
