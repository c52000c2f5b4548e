"""Extraction of a few images in threads: the store that a Ray makes, and the same answers where a network fails."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.pictures import as_webdataset, write_folder
from test_extract import make, rows_of

from ghost_ray.cluster import ray_session
from ghost_ray.config import RayJobConfig
from ghost_ray.errors import JobFailed
from ghost_ray.jobs.extract import accuracy, run, tally
from ghost_ray.jobs.extract.here import may_run_here
from ghost_ray.progress import quietly
from ghost_ray.sources.tars import TarReader
from ghost_ray.store import INDEX


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_folder(tmp_path / "data", 5)
    return tmp_path / "data"


def test_the_same_bytes_as_on_ray(data: Path, tmp_path: Path) -> None:
    run(make(tmp_path / "here", data, num_cpus=2))
    with ray_session(RayJobConfig(num_cpus=2)):
        assert not may_run_here(make(tmp_path / "ray", data))
        run(make(tmp_path / "ray", data))
    for name in ("head.safetensors", INDEX, *(f"rows/{file.name}" for file in (tmp_path / "ray" / "rows").iterdir())):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes(), name


def test_the_result_carries_the_accuracy_and_what_is_said_about_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(make(tmp_path / "store", data))
    right = [label == pred for label, pred, _ in rows_of(tmp_path / "store").values()]
    assert before["accuracy"] == sum(right) / len(right)
    monkeypatch.setattr(accuracy, "_IMAGES", len(right))
    monkeypatch.setattr(accuracy, "_CLASSES", before["classes"])
    monkeypatch.setattr(accuracy, "published_accuracy", lambda name: 0.5)
    (note, *_) = run(make(tmp_path / "again", data))["notes"]
    assert note.startswith(f"accuracy {100 * before['accuracy']:.2f} % on what looks like")


def test_what_asks_for_a_ray(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert may_run_here(make(tmp_path / "store", data, gpus_per_actor=0))
    for asked in ({"actors": "1"}, {"gpus_per_actor": 1}, {"precision": "bf16"}, {"address": "auto"}):
        assert not may_run_here(make(tmp_path / "store", data, **asked))
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert not may_run_here(make(tmp_path / "store", data))


def test_an_image_that_ends_the_networks_process_is_a_failure(data: Path, tmp_path: Path) -> None:
    Image.new("RGB", (40, 40), "white").save(data / "cat" / "white.png")
    before = rows_of(run(make(tmp_path / "sound", data))["store"])
    run(make(tmp_path / "store", data, model="support.failing_networks:dies_of_white", max_failures=0.1))
    assert rows_of(tmp_path / "store").keys() == before.keys() - {"cat/white.png"}
    (failure,) = pq.read_table(tmp_path / "store" / "failures.parquet").to_pylist()
    assert (failure["key"], failure["stage"]) == ("cat/white.png", "embed")
    assert "SIGSEGV" in failure["error"]


def test_a_network_that_always_dies_ends_the_job(data: Path, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match=r"no device computes the embeddings: .*SIGSEGV"):
        run(make(tmp_path / "store", data, model="support.failing_networks:always_dies"))
    assert not (tmp_path / "store").exists()


def test_no_ray_is_imported(data: Path, tmp_path: Path) -> None:
    code = """
import subprocess
import sys
from ghost_ray.cli import main
try:
    main(sys.argv[1:])
finally:
    print("ray" in sys.modules)
"""
    words = ["extract", "--data", str(data), "--model", "support.networks:small", "--out", str(tmp_path / "store")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_seconds_of_reading_shards_are_counted(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing of a shard reads it."""
    keys = [path.relative_to(data).as_posix() for path in sorted(data.rglob("*.jpg"))]
    as_webdataset(data, keys, tmp_path / "shards")
    scan = TarReader.scan

    def slow(self: TarReader, part: Any, bodies: bool = False) -> Iterator[Any]:
        time.sleep(0.5 if bodies else 0)
        yield from scan(self, part, bodies)

    monkeypatch.setattr(TarReader, "scan", slow)
    result = run(make(tmp_path / "store", tmp_path / "shards"))
    assert result["rows"] == len(keys)
    assert result["seconds"]["read"] >= 0.9, "two shards"


def test_a_quiet_job_says_nothing_while_it_waits(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tally, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(tally, "_SILENCE_SECONDS", 0.01)
    with quietly():
        run(make(tmp_path / "store", data))
    assert capsys.readouterr().err == ""
