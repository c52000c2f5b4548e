"""Extraction on clusters of odd shapes: one CPU, GPUs that are only counted, too few of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clusters import counted_gpus
from support.job_processes import Job, run
from test_extract_faults import arguments, keys_of

pytestmark = pytest.mark.slow
PER_CLASS = 50


def test_one_cpu(folder: Path, keys: list[str], tmp_path: Path) -> None:
    run(*arguments(folder, tmp_path / "store", "support.networks:small", num_cpus="1")).result()
    assert keys_of(tmp_path / "store") == keys


class TestLogicalGpus:
    @pytest.fixture
    def address(self) -> Iterator[str]:
        with counted_gpus(4) as running:
            yield running

    def test_four_actors_with_one_each(self, address: str, folder: Path, keys: list[str], tmp_path: Path) -> None:
        import ray

        running = Job(*arguments(folder, tmp_path / "store", address=address, gpus_per_actor="1", actors="4"))
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

    def test_a_pool_that_does_not_fit_says_so(self, address: str, folder: Path, tmp_path: Path) -> None:
        words = arguments(folder, tmp_path / "store", address=address, gpus_per_actor="8", wait_for_nodes="3s")
        ended = run(*words)
        assert ended.code == 1
        assert "waited 3 s for an actor with 8 GPUs without success" in ended.errors.splitlines()[-1]


def test_a_pool_without_gpus_says_so_at_once(folder: Path, tmp_path: Path) -> None:
    ended = run(*arguments(folder, tmp_path / "store", gpus_per_actor="1", num_cpus="2"))
    assert ended.code == 2
    assert "--gpus-per-actor '1'" in ended.errors
    assert "Traceback" not in ended.errors
