"""Extraction of a few images in threads: when it is done so, and what becomes of images that kill the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.job_processes import run
from support.pictures import as_webdataset, write_folder
from test_extract import make, rows_of

from ghost_ray import backbone
from ghost_ray.jobs.extract import commit
from ghost_ray.jobs.extract import run as extract
from ghost_ray.jobs.extract.job import _needs_ray
from ghost_ray.progress import quietly
from ghost_ray.sources.tars import TarReader


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_folder(tmp_path / "data", 5)
    return tmp_path / "data"


def test_the_result_carries_the_accuracy_and_what_is_said_about_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = extract(make(tmp_path / "store", data))
    right = [label == pred for label, pred, _ in rows_of(tmp_path / "store").values()]
    assert before["accuracy"] == sum(right) / len(right)
    monkeypatch.setattr(commit, "_VALIDATION_IMAGES", len(right))
    monkeypatch.setattr(commit, "_VALIDATION_CLASSES", before["classes"])
    monkeypatch.setattr(backbone, "published_accuracy", lambda name: 0.5)
    (note, *_) = extract(make(tmp_path / "again", data))["notes"]
    assert note.startswith(f"accuracy {100 * before['accuracy']:.2f} % on what looks like")


def test_what_asks_for_a_ray(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _needs_ray(make(tmp_path / "store", data, gpus_per_actor=0))
    for asked in ({"actors": "1"}, {"gpus_per_actor": 1}, {"precision": "bf16"}, {"address": "auto"}):
        assert _needs_ray(make(tmp_path / "store", data, **asked))
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert _needs_ray(make(tmp_path / "store", data))


def test_an_image_that_kills_the_decoder_is_found_by_the_second_run(data: Path, tmp_path: Path) -> None:
    keys = sorted(path.relative_to(data).as_posix() for path in data.rglob("*.jpg"))
    Image.new("RGB", (40, 40), "white").save(data / "dog" / "white.png")
    model = "support.failing_networks:decoder_dies_of_white"
    words = ["extract", "--data", str(data), "--model", model, "--out", str(tmp_path / "store"), "--batch-size", "64"]
    words += ["--max-failures", "0.1"]
    first, second = (run(*words) for _ in range(2))
    assert first.code == -signal.SIGSEGV
    assert second.result()["failures"] == 1
    assert sorted(rows_of(tmp_path / "store")) == sorted(keys)
    (failure,) = pq.read_table(tmp_path / "store" / "failures.parquet").to_pylist()
    assert (failure["key"], failure["stage"]) == ("dog/white.png", "decode")
    assert "SIGSEGV" in failure["error"]


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

    def slow(self: TarReader, shard: Any, bodies: bool = False) -> Iterator[Any]:
        time.sleep(0.5 if bodies else 0)
        yield from scan(self, shard, bodies)

    monkeypatch.setattr(TarReader, "scan", slow)
    result = extract(make(tmp_path / "store", tmp_path / "shards"))
    assert result["rows"] == len(keys)
    assert result["seconds"]["read"] >= 0.9, "two shards"


def test_a_quiet_job_says_nothing(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with quietly():
        extract(make(tmp_path / "store", data))
    assert capsys.readouterr().err == ""
