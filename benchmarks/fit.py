"""The whole fit of a store, compared with reading it, and with one boolean mask per class on the whole array.

    python benchmarks/fit.py STORE

Prints one JSON object: ``vs_read`` is the job as a user starts it (imports, files and all) over reading the same
embeddings from Parquet files with pyarrow on the same cores; ``vs_class_masks`` is how many times as long the authors'
way takes, which holds the whole array in memory and selects each class from it. Best of several alternating runs each.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time

import numpy as np
from sides import as_parquet, parse_options, read_and_sort, run_job

from ghost_ray.store import Store


def main() -> None:
    options = parse_options(__doc__)
    store = Store.open(options.store)
    cores = ["--num-cpus", str(options.cores)]
    memory = run_job("fit", options.store, *cores, watch_memory=True)
    jobs, reads = [], []
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(options.store))) as folder:
        paths = as_parquet(store, folder)
        for _ in range(options.repeats):
            reads.append(read_and_sort(store, paths, options.cores, sort=False).read)
            jobs.append(run_job("fit", options.store, *cores).seconds)
    # In a separate process, so that its memory is released.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        masks = pool.apply(class_masks, (options.store,))
    print(
        json.dumps(
            {
                "gigabytes": round(store.rows * store.dimensions * 4e-9, 2),
                "cores": options.cores,
                "job_seconds": round(min(jobs), 2),
                "read_seconds": round(min(reads), 2),
                "class_masks_seconds": round(masks, 2),
                "vs_read": round(min(jobs) / min(reads), 3),
                "vs_class_masks": round(masks / min(jobs), 2),
                "driver_mib": round(memory.driver_mib),
                "total_mib": round(memory.total_mib),
            }
        )
    )


def class_masks(uri: str) -> float:
    """Seconds to read the store into one array and compute mean and std with one boolean mask per class."""
    store = Store.open(uri)
    start = time.perf_counter()
    embedding = np.empty((store.rows, store.dimensions), np.float32)
    label, pred = np.empty(store.rows, np.int32), np.empty(store.rows, np.int32)
    filled = 0
    for groups in store.row_groups():
        for rows in store.batches(groups, logits=False):
            here = slice(filled, filled + len(rows))
            embedding[here], label[here], pred[here] = rows.embedding, rows.label, rows.pred
            filled = here.stop
    mean, std = np.zeros((store.classes, store.dimensions)), np.zeros((store.classes, store.dimensions))
    for k in range(store.classes):
        chosen = embedding[(label == k) & (pred == k)]
        if len(chosen) >= 2:
            mean[k], std[k] = chosen.mean(axis=0), chosen.std(axis=0, ddof=1)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
