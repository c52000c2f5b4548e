"""Extraction on clusters of odd shapes: one CPU, GPUs that are only counted, too few of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
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

        running = Job(*arguments(folder, tmp_path / "store", address=address))
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
        start = time.monotonic()
        ended = run(*arguments(folder, tmp_path / "store", address=address, gpus_per_actor="8"))
        assert ended.code == 2
        assert "--gpus-per-actor '8': does not fit" in ended.errors
        assert time.monotonic() - start < 100


def test_a_pool_without_gpus_says_so_at_once(folder: Path, tmp_path: Path) -> None:
    ended = run(*arguments(folder, tmp_path / "store", gpus_per_actor="1", num_cpus="2"))
    assert ended.code == 2
    assert "--gpus-per-actor '1'" in ended.errors
    assert "Traceback" not in ended.errors


class TestTrappedInstructions:
    """A machine on which a child that computes in bf16 dies, as where a hypervisor traps what its CPU announces."""

    @pytest.fixture
    def trap(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        def set_up(when: str) -> None:
            (tmp_path / "sitecustomize.py").write_text(
                "import os, signal, sys\n"
                f"if any('bfloat16' in word for word in sys.orig_argv) and ({when}):\n"
                "    os.kill(os.getpid(), signal.SIGILL)\n"
            )
            monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
            monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)

        return set_up

    def test_bf16_is_refused_in_one_line(self, trap: Callable[[str], None], folder: Path, tmp_path: Path) -> None:
        trap("True")
        ended = run(*arguments(folder, tmp_path / "store", precision="bf16", num_cpus="2"))
        assert ended.code == 2
        assert "--precision 'bf16': ends a process on this CPU with SIGILL" in ended.errors
        assert "Traceback" not in ended.errors

    def test_every_process_narrows_its_instructions(
        self, trap: Callable[[str], None], folder: Path, keys: list[str], tmp_path: Path
    ) -> None:
        trap("os.environ.get('ONEDNN_MAX_CPU_ISA') != 'AVX512_CORE_BF16'")
        run(*arguments(folder, tmp_path / "store", "support.networks:small", precision="bf16", num_cpus="2")).result()
        assert keys_of(tmp_path / "store") == keys
