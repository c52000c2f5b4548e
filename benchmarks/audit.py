"""The whole audit of a store, compared with reading and sorting the same numbers on the same cores.

    python benchmarks/audit.py STORE

Prints one JSON object: ``vs_limit`` is the job as a user starts it (imports, Holm, files and all) over reading the same
embeddings from Parquet files with pyarrow plus ``np.sort`` of them; best of several alternating runs each.
"""

from __future__ import annotations

import json
import os
import tempfile

from sides import as_parquet, parse_options, read_and_sort, run_job

from ghost_ray.store import Store


def main() -> None:
    options = parse_options(__doc__)
    store = Store.open(options.store)
    cores = ["--num-cpus", str(options.cores)]
    memory = run_job("audit", options.store, *cores, watch_memory=True)
    jobs, limits = [], []
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(options.store))) as folder:
        paths = as_parquet(store, folder)
        for _ in range(options.repeats):
            limits.append(read_and_sort(store, paths, options.cores))
            jobs.append(run_job("audit", options.store, *cores).seconds)
    read, sort = min(limit.read for limit in limits), min(limit.sort for limit in limits)
    print(
        json.dumps(
            {
                "cells": store.classes * store.dimensions,
                "gigabytes": round(store.rows * store.dimensions * 4e-9, 2),
                "cores": options.cores,
                "job_seconds": round(min(jobs), 2),
                "read_seconds": round(read, 2),
                "sort_seconds": round(sort, 2),
                "vs_limit": round(min(jobs) / (read + sort), 3),
                "driver_mib": round(memory.driver_mib),
                "total_mib": round(memory.total_mib),
            }
        )
    )


if __name__ == "__main__":
    main()
