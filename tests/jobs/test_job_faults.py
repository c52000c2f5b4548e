"""Fit and audit with things killed, filled up and broken under them: the result is that of an undisturbed run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import fs
from support.clusters import Raylets, several_raylets
from support.fault_table import Fault
from support.job_processes import Job, run, workers
from support.object_stores import object_store_in_environment
from support.small_disks import on_a_small_disk
from support.stores import Toy, write_store

from ghost_ray.files import names_in, read_bytes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TASKS = {"fit": "_accumulate", "audit": "test_range"}
CONTINUES = "the job continues; the same result"
AGAIN = "exit 1 in one line; nothing is published; the same command gives the same result"


def each_job(what: str, jobs: tuple[str, ...] = ("fit", "audit")) -> Any:
    """The same fault under both jobs."""
    return pytest.mark.parametrize("job", [pytest.param(job, marks=pytest.mark.fault(job, what)) for job in jobs])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough for several tasks of about a second."""
    folder = tmp_path_factory.mktemp("store") / "store"
    rng = np.random.default_rng(0)
    toy = Toy.make(rng, classes=50, dimensions=768)
    write_store(folder, *toy.known(rng, 60_000), toy, group_rows=1500)
    return folder


@pytest.fixture(scope="module")
def raylets() -> Iterator[Raylets]:
    with several_raylets() as running:
        yield running


def content(folder: Path | str) -> dict[str, str]:
    """Digests of a result; the manifest and the summary hold times."""
    names = [name for name in names_in(str(folder)) if name.endswith((".safetensors", ".parquet", ".arrow"))]
    assert names
    return {name: hashlib.sha256(read_bytes(f"{folder}/{name}")).hexdigest() for name in names}


@pytest.fixture(scope="module")
def undisturbed(store: Path, raylets: Raylets, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    for job in TASKS:
        run(job, str(store), "--out", str(folder / job), "--address", raylets.address).result()
    return {job: content(folder / job) for job in TASKS}


def disturb(job: str, store: Path, out: Path, raylets: Raylets, strike: Callable[[Any], None]) -> Job:
    """Start a job and strike as soon as a worker is at it on a node other than the head."""
    running = Job(job, str(store), "--out", str(out), "--address", raylets.address)

    def busy() -> Any:
        return next((node for node in raylets.nodes[1:] if workers(f"ray::{TASKS[job]}", raylets.raylet(node))), None)

    node = running.until(busy, every=0.001)
    strike(node)
    return running


@each_job("a worker is killed")
def test_worker_killed(
    job: str, store: Path, raylets: Raylets, undisturbed: dict[str, Any], tmp_path: Path, fault: Fault
) -> None:
    def kill_worker(node: Any) -> None:
        workers(f"ray::{TASKS[job]}", raylets.raylet(node))[0].kill()

    disturb(job, store, tmp_path / "out", raylets, kill_worker).wait().result()
    assert content(tmp_path / "out") == undisturbed[job]
    assert raylets.idle()
    fault.ended(CONTINUES)


@each_job("a raylet is killed, and with it a node", ("audit",))
def test_node_killed(
    job: str, store: Path, raylets: Raylets, undisturbed: dict[str, Any], tmp_path: Path, fault: Fault
) -> None:
    try:
        disturb(job, store, tmp_path / "out", raylets, raylets.kill).wait().result()
    finally:
        raylets.add()
    assert content(tmp_path / "out") == undisturbed[job]
    assert raylets.idle()
    fault.ended(CONTINUES)


@each_job("the driver is killed")
def test_driver_killed(
    job: str, store: Path, raylets: Raylets, undisturbed: dict[str, Any], tmp_path: Path, fault: Fault
) -> None:
    out = tmp_path / "out"
    running = disturb(job, store, out, raylets, lambda node: None)
    running.kill()
    assert not out.exists()
    assert raylets.idle()
    run(job, str(store), "--out", str(out), "--address", raylets.address).result()
    assert content(out) == undisturbed[job]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    fault.ended("nothing is published; the same command gives the same result")


@each_job("Ray's object store is full")
def test_object_store_full(
    job: str, store: Path, raylets: Raylets, undisturbed: dict[str, Any], tmp_path: Path, fault: Fault
) -> None:
    with raylets.full_object_store():
        run(job, str(store), "--out", str(tmp_path / "out"), "--address", raylets.address).result()
    assert content(tmp_path / "out") == undisturbed[job]
    fault.ended("Ray spills to disk; the same result")


@each_job("the disk is full", ("fit",))
def test_disk_full(job: str, store: Path, undisturbed: dict[str, Any], tmp_path: Path, fault: Fault) -> None:
    disk, saved = tmp_path / "disk", tmp_path / "saved"
    runs = on_a_small_disk(disk, kibibytes=256, words=[job, str(store), "--out", str(disk / "out")], saved=saved)
    assert runs.full.code == 1
    assert "No space left on device" in runs.full.errors
    assert "Traceback" not in runs.full.errors
    assert "unexpected" not in runs.full.errors
    assert runs.freed.code == 0, runs.freed.errors
    assert content(saved / "out") == undisturbed[job]
    assert [path.name for path in saved.iterdir()] == ["out"]
    fault.ended(AGAIN)


@each_job("S3 fails every tenth request and takes 0.1 s", ("fit",))
def test_object_store_in_trouble(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    rng = np.random.default_rng(0)
    toy = Toy.make(rng)
    write_store(tmp_path / "store", *toy.known(rng, 500), toy, group_rows=100)
    run(job, str(tmp_path / "store"), "--out", str(tmp_path / "out"), "--num-cpus", "2").result()
    with object_store_in_environment(monkeypatch) as remote:
        filesystem, place = remote.filesystem(), f"s3://{remote.bucket}"
        fs.copy_files(str(tmp_path / "store"), f"{remote.bucket}/store", destination_filesystem=filesystem)
        remote.period, remote.delay = 10, 0.1
        run(job, f"{place}/store", "--out", f"{place}/out", "--num-cpus", "2").result()
        remote.period, remote.delay = 0, 0
        assert content(f"{place}/out") == content(tmp_path / "out")
        left = filesystem.get_file_info(fs.FileSelector(remote.bucket))
        assert {info.base_name for info in left} == {"store", "out"}
    fault.ended(CONTINUES)
