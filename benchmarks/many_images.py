"""Extraction of very many very small images: what the listing, the blocks and the driver's memory cost.

    python benchmarks/many_images.py [--images 100000] [--classes 100]

Runs ``ghost-ray extract`` as a user would, from its first import to its last byte, on JPEGs of 36×36 pixels in class
folders with a network that computes almost nothing, and watches the memory of all its processes. A page shared by
several of them is counted once; the driver's figure is its whole resident set. Prints one JSON object;
``listing_seconds`` is what naming all the images takes, before the first one is read.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import tiny
from sides import run_command

from ghost_ray.sources import list_all, open_source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--classes", type=int, default=100)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    os.environ[tiny.CLASSES] = str(options.classes)
    with tempfile.TemporaryDirectory() as folder:
        images = f"{folder}/images"
        tiny.write_images(Path(images), options.images, options.classes)
        start = time.perf_counter()
        source = list_all(open_source(images))
        listing = time.perf_counter() - start
        words = ["extract", "--data", images, "--model", "tiny:device", "--out", f"{folder}/store", "--json"]
        job = run_command(words, watch_memory=True)
    result = json.loads(job.output)
    assert result["rows"] == source.preview.images == options.images
    print(
        json.dumps(
            {
                "cores": len(os.sched_getaffinity(0)),
                "images": options.images,
                "listing_seconds": round(listing, 2),
                "job_seconds": round(job.seconds, 1),
                "images_per_second": result["images_per_second"],
                "stage_seconds": result["seconds"],
                "driver_mib": round(job.driver_mib),
                "total_mib": round(job.total_mib),
            }
        )
    )


if __name__ == "__main__":
    main()
