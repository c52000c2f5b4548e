"""Extraction with things killed under it: the driver, an actor, a node; and on clusters of odd shapes."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from pictures import write_folder
from pyarrow import fs
from test_sources import FlakyStore

from ghost_ray.gaussians import Accumulator, Gaussians
from ghost_ray.store import Store

pytestmark = pytest.mark.slow

PER_CLASS = 100
BATCH = 8


def arguments(data: Path, out: Path, model: str = "networks:slow", **options: str) -> list[str]:
    given = {"data": str(data), "model": model, "out": str(out), "batch-size": str(BATCH), **options}
    return [word for name, value in given.items() for word in (f"--{name}", value)]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "ghost_ray", "extract", *words, "--json"]


def finish(*words: str) -> dict[str, Any]:
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def keys_of(store: Path) -> list[str]:
    files = sorted((store / "rows").glob("*.parquet"))
    return sorted(key for file in files for key in pq.read_table(file, columns=["key"])["key"].to_pylist())


def gaussians_of(uri: Path | str) -> Gaussians:
    store = Store.open(str(uri))
    accumulator = Accumulator.empty(store.classes, store.dimensions)
    for piece in store.pieces():
        rows = store.read(piece)
        accumulator.update(rows.embedding, rows.label)
    return accumulator.finish()


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.1)


def blocks_done(out: Path) -> int:
    checkpoints = (out.parent / f".{out.name}.partial" / "checkpoint").glob("*.parquet")
    return sum(not path.name.endswith(".pending.parquet") for path in checkpoints)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("faults") / "images"
    write_folder(root, PER_CLASS)
    return root


@pytest.fixture(scope="module")
def keys(data: Path) -> list[str]:
    return sorted(path.relative_to(data).as_posix() for path in data.glob("*/*.jpg"))


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Gaussians:
    out = tmp_path_factory.mktemp("undisturbed") / "store"
    finish(*arguments(data, out, "networks:small"))
    return gaussians_of(out)


def check(out: Path, keys: list[str], undisturbed: Gaussians) -> None:
    """Each key once, and the Gaussians of the undisturbed run to the last float32 digit."""
    assert keys_of(out) == keys
    found = gaussians_of(out)
    np.testing.assert_array_equal(found.count, undisturbed.count)
    np.testing.assert_array_max_ulp(found.mean, undisturbed.mean, maxulp=1)
    np.testing.assert_array_max_ulp(found.std, undisturbed.std, maxulp=1)
    leftovers = [path for path in out.rglob("*") if path.name in ("blocks", "checkpoint", "settings.json")]
    assert not leftovers


def test_driver_killed(data: Path, keys: list[str], undisturbed: Gaussians, tmp_path: Path) -> None:
    out = tmp_path / "store"
    words = arguments(data, out, actors="1")
    first = subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    family: list[psutil.Process] = []
    try:
        wait_until(lambda: blocks_done(out) >= 3)
        family = psutil.Process(first.pid).children(recursive=True)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    psutil.wait_procs(family, timeout=60)
    written = len(pq.ParquetDataset(out.parent / ".store.partial" / "blocks").read(["key"]))
    assert 3 * BATCH <= written < len(keys)
    second = subprocess.run(command(*words), capture_output=True, text=True, timeout=400, check=False)
    assert second.returncode == 0, second.stderr
    # What was committed is not computed again.
    said = next(line for line in second.stderr.splitlines() if "are done already" in line)
    assert int(said.split()[1]) >= 3 * BATCH
    check(out, keys, undisturbed)


def test_actor_killed(data: Path, keys: list[str], undisturbed: Gaussians, tmp_path: Path) -> None:
    out = tmp_path / "store"
    running = subprocess.Popen(
        command(*arguments(data, out, actors="2")), stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        wait_until(lambda: blocks_done(out) >= 2)
        workers = psutil.Process(running.pid).children(recursive=True)
        actors = [process for process in workers if "MapWorker(MapBatches(Embed)" in process.name() + _title(process)]
        assert actors
        actors[0].kill()
        _, stderr = running.communicate(timeout=300)
    finally:
        if running.poll() is None:
            running.kill()
    assert running.returncode == 0, stderr
    check(out, keys, undisturbed)


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head with one CPU and two more nodes with one each."""
    import ray
    from ray.cluster_utils import Cluster

    assert not ray.is_initialized(), "needs a process of its own"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    made.wait_for_nodes()
    try:
        yield made
    finally:
        made.shutdown()


def test_node_killed(cluster: Any, data: Path, keys: list[str], undisturbed: Gaussians, tmp_path: Path) -> None:
    out = tmp_path / "store"
    words = arguments(data, out, address=cluster.address, actors="3")
    running = subprocess.Popen(command(*words), stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        wait_until(lambda: blocks_done(out) >= 3)
        node = next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)
        cluster.remove_node(node, allow_graceful=False)
        running.communicate(timeout=400)
    finally:
        if running.poll() is None:
            running.kill()
    if running.returncode != 0:  # the job may give up, but then the same command goes on
        finish(*words)
    check(out, keys, undisturbed)


def test_one_cpu(data: Path, keys: list[str], undisturbed: Gaussians, tmp_path: Path) -> None:
    out = tmp_path / "store"
    finish(*arguments(data, out, "networks:small", **{"num-cpus": "1"}))
    check(out, keys, undisturbed)


class TestLogicalGpus:
    @pytest.fixture
    def address(self) -> Iterator[str]:
        import ray
        from ray.cluster_utils import Cluster

        assert not ray.is_initialized(), "needs a process of its own"
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 4, "include_dashboard": False})
        try:
            yield made.address
        finally:
            made.shutdown()

    def test_four_actors_with_one_each(self, address: str, data: Path, keys: list[str], tmp_path: Path) -> None:
        import ray

        out = tmp_path / "store"
        words = arguments(data, out, address=address)
        most = 0.0
        running = subprocess.Popen(command(*words), stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        ray.init(address=address, log_to_driver=False)
        try:
            while running.poll() is None:
                most = max(most, 4 - ray.available_resources().get("GPU", 0.0))
                time.sleep(0.3)
        finally:
            ray.shutdown()
            running.communicate(timeout=60)
        assert running.returncode == 0
        assert most == 4
        assert keys_of(out) == keys

    def test_a_pool_that_does_not_fit_says_so(self, address: str, data: Path, tmp_path: Path) -> None:
        words = arguments(data, tmp_path / "store", address=address, **{"gpus-per-actor": "8"})
        start = time.monotonic()
        done = subprocess.run(command(*words), capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 2
        assert "do not fit" in done.stderr
        assert time.monotonic() - start < 100


def test_a_pool_without_gpus_says_so_at_once(data: Path, tmp_path: Path) -> None:
    words = arguments(data, tmp_path / "store", **{"gpus-per-actor": "1", "num-cpus": "2"})
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert "--gpus-per-actor '1'" in done.stderr
    assert "Traceback" not in done.stderr


class TestObjectStore:
    @pytest.fixture(params=[0, 10], ids=["sound", "failing every tenth request"])
    def endpoint(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlakyStore]:
        import boto3

        store = FlakyStore()
        settings = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{store._server.port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        boto3.client("s3").create_bucket(Bucket=f"bucket{request.param}")
        yield store
        store.close()

    def test_in_and_out(self, endpoint: FlakyStore, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        period = request.node.callspec.params["endpoint"]
        bucket = f"bucket{period}"
        uploaded = sorted(write_folder(tmp_path / "images", 20))
        remote, _ = fs.FileSystem.from_uri(f"s3://{bucket}")
        fs.copy_files(str(tmp_path / "images"), f"{bucket}/images", destination_filesystem=remote)
        endpoint.period, before = period, endpoint.requests
        words = ["--data", f"s3://{bucket}/images", "--model", "networks:small", "--out", f"s3://{bucket}/deep/store"]
        result = finish(*words, "--batch-size", "8", "--max-failures", "0")
        assert result["rows"] == len(uploaded)
        assert endpoint.requests > before + len(uploaded)
        endpoint.period = 0
        found = Store.open(f"s3://{bucket}/deep/store")
        keys = [key for piece in found.pieces() for key in found.read(piece, keys=True).key.to_pylist()]
        assert sorted(keys) == uploaded
        there = remote.get_file_info(fs.FileSelector(f"{bucket}/deep", recursive=True))
        rows = {f"rows/{file.name}" for file in found.files}
        whole = {"manifest.json", "head.safetensors", "failures.parquet", *rows}
        assert {info.path for info in there if info.is_file} == {f"{bucket}/deep/store/{name}" for name in whole}
        finish(*arguments(tmp_path / "images", tmp_path / "local", "networks:small"))
        local = gaussians_of(tmp_path / "local")
        np.testing.assert_array_max_ulp(gaussians_of(found.uri).mean, local.mean, maxulp=1)
