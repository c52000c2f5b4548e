"""Arrays larger than memory, and arrays on an object store."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs
from support.array_files import WRITERS, Arrays
from support.object_stores import ObjectStore, object_store_in_environment

from ghost_ray.config import ImportConfig
from ghost_ray.jobs.importing import run
from ghost_ray.store import Store

# Imports what it is told to, and prints the most memory of its own that it had, in MiB.
WATCHED = """
import json, sys, threading
from ghost_ray.config import ImportConfig
from ghost_ray.jobs.importing import run

def own_memory():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("RssAnon"))

done, peak = threading.Event(), [own_memory()]
def watch():
    while not done.wait(0.005):
        peak.append(own_memory())
watching = threading.Thread(target=watch)
watching.start()
run(ImportConfig(**json.loads(sys.argv[1])))
done.set()
watching.join()
print(max(peak))
"""


def peak_memory(files: dict[str, str], out: Path) -> int:
    settings = json.dumps({**files, "out": str(out)})
    answer = subprocess.run(
        [sys.executable, "-c", WATCHED, settings], capture_output=True, text=True, timeout=300, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return int(answer.stdout)


@pytest.mark.parametrize("kind", ["npy", "torch, a dict", "parquet, lists"])
def test_six_times_the_rows_take_no_more_memory(tmp_path: Path, rng: np.random.Generator, kind: str) -> None:
    peaks = {}
    for rows in (40_000, 240_000):
        folder = tmp_path / str(rows)
        folder.mkdir()
        files = WRITERS[kind](folder, Arrays.make(rng, rows, dimensions=250, classes=6))
        peaks[rows] = peak_memory(files, folder / "store")
    added = 200_000 * 256 * 4 >> 20
    assert peaks[240_000] - peaks[40_000] < 0.4 * added, peaks


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with object_store_in_environment(monkeypatch) as store:
        yield store


@pytest.mark.parametrize(
    "kind", ["npy", "npz", "torch, a dict", "safetensors", "parquet, lists", "text of numpy.savetxt"]
)
def test_files_on_an_object_store(tmp_path: Path, rng: np.random.Generator, bucket: ObjectStore, kind: str) -> None:
    files = WRITERS[kind](tmp_path, Arrays.make(rng, 300))
    run(ImportConfig(**files, out=str(tmp_path / "here")))
    remote = bucket.filesystem()
    fs.copy_files(str(tmp_path), bucket.bucket, destination_filesystem=remote)
    there = {field: path.replace(str(tmp_path), f"s3://{bucket.bucket}") for field, path in files.items()}
    run(ImportConfig(**there, out=f"s3://{bucket.bucket}/there"))
    (part,) = (tmp_path / "here" / "rows").iterdir()
    with remote.open_input_file(f"{bucket.bucket}/there/rows/{part.name}") as handle:
        assert handle.read() == part.read_bytes()
    assert Store.open(f"s3://{bucket.bucket}/there").manifest.data[0].uri == there["features"]
