"""Extraction with things killed, filled up and broken under it: the result is that of an undisturbed run."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from pyarrow import fs
from support.clusters import Raylets, several_raylets
from support.fault_table import Fault
from support.job_processes import Job, run, workers
from support.object_stores import ObjectStore, object_store_in_environment
from support.pictures import write_folder
from support.small_disks import on_a_small_disk

from ghost_ray.gaussians import Accumulator, Gaussians
from ghost_ray.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PER_CLASS = 100
BATCH = 8
EMBED, DECODE = "MapWorker(MapBatches(Embed)", "MapBatches(Decode)"
CONTINUES = "the job continues; the same result"
RESUMES = "exit 1 in one line; the same command resumes; the same result"


def arguments(data: Path | str, out: Path | str, model: str = "support.networks:slow", **options: str) -> list[str]:
    given = {"data": str(data), "model": model, "out": str(out), "batch-size": str(BATCH), "gpus_per_actor": "0"}
    given |= options
    return ["extract", *(word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value))]


def keys_of(store: Path | str) -> list[str]:
    found = Store.open(str(store))
    return sorted(key for groups in found.row_groups() for key in found.read_small(groups, "key")["key"].to_pylist())


def gaussians_of(uri: Path | str) -> Gaussians:
    store = Store.open(str(uri))
    accumulator = Accumulator.empty(store.classes, store.dimensions)
    for groups in store.row_groups():
        rows = store.read(groups)
        accumulator.update(rows.embedding, rows.label)
    return accumulator.finish()


def blocks_done(out: Path) -> int:
    blocks = (out.parent / f".{out.name}.partial" / "blocks").glob("*.arrow")
    return sum(path.read_bytes()[-6:] == b"ARROW1" for path in blocks)  # whole ones


@pytest.fixture(scope="module")
def raylets() -> Iterator[Raylets]:
    """Three nodes; a test that kills one puts another in its place."""
    with several_raylets() as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(folder: Path, tmp_path_factory: pytest.TempPathFactory, raylets: Raylets) -> Gaussians:
    out = tmp_path_factory.mktemp("undisturbed") / "store"
    run(*arguments(folder, out, "support.networks:small", address=raylets.address)).result()
    return gaussians_of(out)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "store"


def check(out: Path | str, keys: list[str], undisturbed: Gaussians) -> None:
    """Each key once, and the Gaussians of the undisturbed run to the last float32 digit."""
    assert keys_of(out) == keys
    found = gaussians_of(out)
    np.testing.assert_array_equal(found.count, undisturbed.count)
    np.testing.assert_array_max_ulp(found.mean, undisturbed.mean, maxulp=1)
    np.testing.assert_array_max_ulp(found.std, undisturbed.std, maxulp=1)
    if isinstance(out, Path):
        leftovers = [path for path in out.rglob("*") if path.name in ("blocks", "listings", "settings.json")]
        assert not leftovers
        assert [path.name for path in out.parent.iterdir()] == [out.name]


def at_work(raylets: Raylets, title: str) -> list[psutil.Process]:
    return [process for node in raylets.nodes for process in workers(title, raylets.raylet(node))]


@pytest.mark.fault("extract", "the driver is killed")
def test_driver_killed(
    raylets: Raylets, folder: Path, keys: list[str], undisturbed: Gaussians, out: Path, fault: Fault
) -> None:
    words = arguments(folder, out, actors="1", address=raylets.address)
    first = Job(*words)
    first.until(lambda: blocks_done(out) >= 3)
    first.kill()
    assert raylets.idle()
    assert 3 <= blocks_done(out) < len(keys) // BATCH
    second = run(*words)
    # What was committed is not computed again.
    said = next(line for line in second.errors.splitlines() if "are done already" in line)
    assert int(said.split()[1]) >= 3 * BATCH
    second.result()
    check(out, keys, undisturbed)
    assert raylets.idle()
    fault.ended("nothing is published; the same command resumes; the same result")


@pytest.mark.fault("extract", "a local driver is killed, with the Ray it started")
def test_local_driver_killed(folder: Path, keys: list[str], undisturbed: Gaussians, out: Path, fault: Fault) -> None:
    words = arguments(folder, out, actors="1")
    first = Job(*words)
    first.until(lambda: blocks_done(out) >= 3)
    first.kill()
    second = run(*words)
    assert "are done already" in second.errors
    second.result()
    check(out, keys, undisturbed)
    fault.ended("Ray ends with it; the same command resumes; the same result")


@pytest.mark.parametrize(
    ("title", "network"),
    [
        pytest.param(EMBED, "slow", marks=pytest.mark.fault("extract", "an embedding actor is killed"), id="actor"),
        pytest.param(
            DECODE,
            "slow_to_decode",
            marks=pytest.mark.fault("extract", "a worker that decodes is killed"),
            id="worker",
        ),
    ],
)
def test_process_killed(
    raylets: Raylets,
    folder: Path,
    keys: list[str],
    undisturbed: Gaussians,
    out: Path,
    fault: Fault,
    title: str,
    network: str,
) -> None:
    running = Job(*arguments(folder, out, f"support.networks:{network}", actors="2", address=raylets.address))
    running.until(lambda: blocks_done(out) >= 2)
    running.until(lambda: at_work(raylets, title), every=0.001)[0].kill()
    running.wait().result()
    check(out, keys, undisturbed)
    assert raylets.idle()
    fault.ended(CONTINUES)


@pytest.mark.fault("extract", "a raylet is killed, and with it a node")
def test_node_killed(
    raylets: Raylets, folder: Path, keys: list[str], undisturbed: Gaussians, out: Path, fault: Fault
) -> None:
    running = Job(*arguments(folder, out, actors="3", address=raylets.address))
    running.until(lambda: blocks_done(out) >= 3)
    raylets.kill(raylets.nodes[-1])
    try:
        running.wait().result()
    finally:
        raylets.add()
    check(out, keys, undisturbed)
    assert raylets.idle()
    fault.ended(CONTINUES)


@pytest.mark.fault("extract", "a node joins midway")
def test_node_joins(
    raylets: Raylets, folder: Path, keys: list[str], undisturbed: Gaussians, out: Path, fault: Fault
) -> None:
    # An actor needs a GPU (a logical one), so that only a node that joins can hold another.
    plain = raylets.nodes[1:]
    for node in plain:
        raylets.kill(node)
    with_gpu = [raylets.add(num_gpus=1)]
    words = arguments(folder, out, "support.networks:slower", actors="1:3", gpus_per_actor="1", address=raylets.address)
    running = Job(*words)
    try:
        running.until(lambda: blocks_done(out) >= 1)
        joined = [raylets.add(num_gpus=1), raylets.add(num_gpus=1)]
        with_gpu += joined
        assert running.until(lambda: [node for node in joined if workers("Map", raylets.raylet(node))])
        running.wait().result()
    finally:
        running.process.kill()
        for node in with_gpu:
            raylets.kill(node)
        for _ in plain:
            raylets.add()
    check(out, keys, undisturbed)
    fault.ended("it takes part in the work; the same result")


@pytest.mark.fault("extract", "the head is killed, and with it the cluster")
def test_cluster_lost(folder: Path, keys: list[str], undisturbed: Gaussians, out: Path, fault: Fault) -> None:
    words = arguments(folder, out, actors="1", num_cpus="2")
    running = Job(*words)
    running.until(lambda: blocks_done(out) >= 3)
    for name in ("gcs_server", "raylet"):
        for process in psutil.Process(running.process.pid).children():
            if process.name() == name:
                process.kill()
    ended = running.wait()
    assert ended.code != 0
    assert "Traceback" not in ended.errors
    run(*words).result()
    check(out, keys, undisturbed)
    fault.ended("the job ends; the same command resumes; the same result")


@pytest.mark.fault("extract", "Ray's object store is full")
def test_object_store_full(
    folder: Path, keys: list[str], undisturbed: Gaussians, out: Path, fault: Fault, raylets: Raylets
) -> None:
    with raylets.full_object_store():
        run(*arguments(folder, out, "support.networks:small", address=raylets.address)).result()
    check(out, keys, undisturbed)
    fault.ended("Ray spills to disk; the same result")


@pytest.mark.fault("extract", "the disk is full")
def test_disk_full(folder: Path, keys: list[str], undisturbed: Gaussians, tmp_path: Path, fault: Fault) -> None:
    out = tmp_path / "disk" / "store"
    ended = on_a_small_disk(
        tmp_path / "disk",
        kibibytes=64,
        words=arguments(folder, out, "support.networks:small"),
        saved=tmp_path / "saved",
    )
    assert ended.full.code == 1
    assert "No space left on device" in ended.full.errors
    assert f"disk of {socket.gethostname()}" in ended.full.errors
    assert str(out.parent) in ended.full.errors
    assert "Traceback" not in ended.full.errors
    assert ended.freed.code == 0, ended.freed.errors
    check(tmp_path / "saved" / "store", keys, undisturbed)
    fault.ended(RESUMES)


class TestObjectStore:
    @pytest.fixture(scope="class")
    @classmethod
    def pictures(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("remote") / "images"
        write_folder(folder, 20)
        return folder

    @pytest.fixture(scope="class")
    @classmethod
    def expected(cls, pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Gaussians:
        out = tmp_path_factory.mktemp("local") / "store"
        run(*arguments(pictures, out, "support.networks:small")).result()
        return gaussians_of(out)

    @pytest.fixture
    def remote(self, monkeypatch: pytest.MonkeyPatch, pictures: Path) -> Iterator[ObjectStore]:
        with object_store_in_environment(monkeypatch) as store:
            fs.copy_files(str(pictures), f"{store.bucket}/images", destination_filesystem=store.filesystem())
            yield store

    @pytest.mark.parametrize(
        ("period", "delay"),
        [
            pytest.param(10, 0, marks=pytest.mark.fault("extract", "S3 fails every tenth request"), id="failing"),
            pytest.param(0, 0.3, marks=pytest.mark.fault("extract", "S3 takes 0.3 s per request"), id="slow"),
        ],
    )
    def test_in_and_out(
        self, remote: ObjectStore, pictures: Path, expected: Gaussians, fault: Fault, period: int, delay: float
    ) -> None:
        remote.period, remote.delay, before = period, delay, remote.requests
        place = f"s3://{remote.bucket}/deep/store"
        words = arguments(f"s3://{remote.bucket}/images", place, "support.networks:small", max_failures="0")
        result = run(*words).result()
        remote.period, remote.delay = 0, 0
        uploaded = sorted(path.relative_to(pictures).as_posix() for path in pictures.glob("*/*.jpg"))
        assert result["rows"] == len(uploaded)
        assert remote.requests > before + len(uploaded)
        check(place, uploaded, expected)
        rows = {f"rows/{file.name}" for file in Store.open(place).files}
        whole = {"manifest.json", "head.safetensors", "failures.parquet", "row_groups.safetensors", *rows}
        there = remote.filesystem().get_file_info(fs.FileSelector(f"{remote.bucket}/deep", recursive=True))
        assert {f"s3://{info.path}" for info in there if info.is_file} == {f"{place}/{name}" for name in whole}
        fault.ended(CONTINUES)

    @pytest.mark.fault("extract", "S3 is down for longer than the job waits")
    def test_down(
        self,
        remote: ObjectStore,
        pictures: Path,
        expected: Gaussians,
        fault: Fault,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("GHOST_RAY_STORE_PATIENCE", "30")
        place, uploaded = f"s3://{remote.bucket}/store", sorted(pictures.glob("*/*.jpg"))
        words = arguments(f"s3://{remote.bucket}/images", place, "support.networks:small", max_failures="0")
        listed = remote.requests + len(uploaded) // 2
        running = Job(*words)
        running.until(lambda: remote.requests > listed)
        remote.down = True
        ended = running.wait()
        assert ended.code == 1
        assert "Traceback" not in ended.errors
        assert "503" in ended.errors.splitlines()[-1]
        remote.down = False
        result = run(*words).result()
        assert (result["rows"], result["failures"]) == (len(uploaded), 0)
        check(place, [path.relative_to(pictures).as_posix() for path in uploaded], expected)
        fault.ended(RESUMES)
