"""Extraction on clusters of odd shapes: one CPU, GPUs that are only counted, too few of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_processes import Job, run
from pictures import write_folder
from test_extract_faults import arguments, keys_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pools") / "images"
    write_folder(root, 50)
    return root


@pytest.fixture(scope="module")
def keys(data: Path) -> list[str]:
    return sorted(path.relative_to(data).as_posix() for path in data.glob("*/*.jpg"))


def test_one_cpu(data: Path, keys: list[str], tmp_path: Path) -> None:
    run(*arguments(data, tmp_path / "store", "networks:small", num_cpus="1")).result()
    assert keys_of(tmp_path / "store") == keys


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

        running = Job(*arguments(data, tmp_path / "store", address=address))
        most = 0.0
        ray.init(address=address, log_to_driver=False)
        try:
            while running.running():
                most = max(most, 4 - ray.available_resources().get("GPU", 0.0))
                time.sleep(0.3)
        finally:
            ray.shutdown()
            running.wait(60).result()
        assert most == 4
        assert keys_of(tmp_path / "store") == keys

    def test_a_pool_that_does_not_fit_says_so(self, address: str, data: Path, tmp_path: Path) -> None:
        start = time.monotonic()
        ended = run(*arguments(data, tmp_path / "store", address=address, gpus_per_actor="8"))
        assert ended.code == 2
        assert "do not fit" in ended.errors
        assert time.monotonic() - start < 100


def test_a_pool_without_gpus_says_so_at_once(data: Path, tmp_path: Path) -> None:
    ended = run(*arguments(data, tmp_path / "store", gpus_per_actor="1", num_cpus="2"))
    assert ended.code == 2
    assert "--gpus-per-actor '1'" in ended.errors
    assert "Traceback" not in ended.errors
