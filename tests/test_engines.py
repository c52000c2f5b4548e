"""Tasks in threads: as Ray runs them, without Ray."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from stores import Toy, write_store

from ghost_ray import fit
from ghost_ray.config import FitConfig, RayJobConfig
from ghost_ray.errors import InputError, JobFailed
from ghost_ray.runtime import map_merge, map_ordered, ray_session, workers


@pytest.fixture(scope="module")
def trees_of_ray() -> dict[int, str]:
    with ray_session(RayJobConfig(num_cpus=2)):
        return {count: map_merge(_name, range(count), _bracket) for count in (1, 7, 8, 9, 64, 70)}


@pytest.fixture(params=[1, 2, 7])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    with workers(RayJobConfig(num_cpus=request.param)):
        yield request.param


def _slow_first(item: int) -> int:
    time.sleep(0.05 if item % 3 == 0 else 0)
    return item * item


def _name(item: int) -> str:
    return f"{item} "


def _bracket(results: list[str]) -> str:
    return f"({''.join(results)})"


def test_results_come_in_the_items_order(threads: int) -> None:
    assert list(map_ordered(_slow_first, range(20))) == [(i, i * i) for i in range(20)]


def test_no_more_is_under_way_than_the_window(threads: int) -> None:
    begun: list[int] = []
    results = map_ordered(lambda item: begun.append(item), range(100))
    next(results)
    results.close()
    assert len(begun) <= 2 * threads + 2


def test_results_merge_in_the_same_tree_as_in_ray(trees_of_ray: dict[int, str], threads: int) -> None:
    for count, tree in trees_of_ray.items():
        assert map_merge(_name, range(count), _bracket) == tree


def test_what_a_task_raises_arrives_as_with_ray(threads: int) -> None:
    def refuse(item: int) -> int:
        raise InputError("STORE", "x", f"row {item} is wrong", "extract again")

    def break_down(item: int) -> int:
        raise ZeroDivisionError("deep inside")

    with pytest.raises(InputError, match="row 0 is wrong"):
        list(map_ordered(refuse, range(3)))
    with pytest.raises(InputError, match="row 0 is wrong"):
        map_merge(refuse, range(3), _bracket)
    with pytest.raises(JobFailed, match="ZeroDivisionError: deep inside"):
        list(map_ordered(break_down, range(3)))


def test_nothing_is_left_running() -> None:
    with workers(RayJobConfig(num_cpus=2)):
        next(map_ordered(_slow_first, range(100)))
    time.sleep(0.5)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ghost_ray")]


@pytest.fixture
def store(tmp_path: Path, rng: np.random.Generator) -> str:
    """Rows of all classes in every file, so that parts overlap and the order of merging shows."""
    toy = Toy.make(rng, classes=7)
    embedding, label = toy.known(rng, 3000)
    mixed = rng.permutation(3000)
    rows = write_store(tmp_path / "s", embedding[mixed], label[mixed], toy, group_rows=20, layout="unordered")
    return rows.uri


def test_a_fit_is_the_same_in_threads_and_in_ray(tmp_path: Path, store: str) -> None:
    fit.run(FitConfig(store=store, out=str(tmp_path / "threads"), num_cpus=3))
    with ray_session(RayJobConfig(num_cpus=2)):
        fit.run(FitConfig(store=store, out=str(tmp_path / "ray")))
    files = sorted(path.name for path in (tmp_path / "ray").glob("*.safetensors"))
    assert files
    for name in files:
        assert (tmp_path / "threads" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()


def test_a_job_on_a_store_does_not_start_ray(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["ray"], "init", lambda *_, **__: pytest.fail("Ray was started"))
    fit.run(FitConfig(store=store, out=str(tmp_path / "model")))
