"""Tasks in threads: as Ray runs them, without Ray."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.stores import Toy, write_store
from threadpoolctl import threadpool_info, threadpool_limits

from ghost_ray.cluster import current_engine, map_merge, map_ordered, ray_session, workers
from ghost_ray.cluster import threads as in_threads
from ghost_ray.config import FitConfig, RayJobConfig
from ghost_ray.errors import InputError, JobFailed
from ghost_ray.jobs import fit


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rows of all classes in every file, so that parts overlap and the order of merging shows."""
    rng = np.random.default_rng(0)
    toy = Toy.make(rng, classes=7)
    embedding, label = toy.known(rng, 3000)
    mixed = rng.permutation(3000)
    folder = tmp_path_factory.mktemp("engines") / "s"
    return write_store(folder, embedding[mixed], label[mixed], toy, group_rows=20, layout="unordered").uri


@dataclass(frozen=True)
class FromRay:
    """What Ray's tasks gave."""

    trees: dict[int, str]
    model: Path


@pytest.fixture(scope="module")
def from_ray(store: str, tmp_path_factory: pytest.TempPathFactory) -> FromRay:
    """A Ray of this file's own, gone before the tests begin: beside one that is joined no job runs in threads."""
    model = tmp_path_factory.mktemp("ray") / "model"
    with ray_session(RayJobConfig(num_cpus=2)):
        fit.run(FitConfig(store=store, out=str(model)))
        return FromRay({count: map_merge(_name, range(count), _bracket) for count in (1, 7, 8, 9, 64, 70)}, model)


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


def test_results_merge_in_the_same_tree_as_in_ray(from_ray: FromRay, threads: int) -> None:
    for count, tree in from_ray.trees.items():
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


def test_threads_that_were_asked_for_go_before_a_ray_that_is_named() -> None:
    with in_threads(2), workers(RayJobConfig(address="127.0.0.1:1")):
        names = {name for _, name in map_ordered(lambda _: threading.current_thread().name, range(4))}
    assert all(name.startswith("ghost_ray") for name in names)


def test_nothing_is_left_running() -> None:
    with workers(RayJobConfig(num_cpus=2)):
        next(map_ordered(_slow_first, range(100)))
    time.sleep(0.5)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ghost_ray")]


def test_a_fit_is_the_same_in_threads_and_in_ray(tmp_path: Path, store: str, from_ray: FromRay) -> None:
    fit.run(FitConfig(store=store, out=str(tmp_path / "threads"), num_cpus=3))
    files = sorted(path.name for path in from_ray.model.glob("*.safetensors"))
    assert files
    for name in files:
        assert (tmp_path / "threads" / name).read_bytes() == (from_ray.model / name).read_bytes()


def test_a_job_on_a_store_does_not_start_ray(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["ray"], "init", lambda *_, **__: pytest.fail("Ray was started"))
    fit.run(FitConfig(store=store, out=str(tmp_path / "model")))


def test_a_task_takes_what_others_give(threads: int) -> None:
    engine = current_engine()
    with engine.running():
        halves = [engine.submit(_name, item) for item in range(3)]
        joined = engine.submit(lambda end, *found: "".join(found) + end, engine.put("!"), *halves)
        assert engine.result(joined) == "0 1 2 !"
        broken = engine.submit(lambda: 1 // 0)
        with pytest.raises(JobFailed, match="ZeroDivisionError"):
            engine.result(engine.submit(_name, broken))


def test_a_task_keeps_to_one_core_and_the_process_has_all_again_afterwards() -> None:
    def of_libraries(_: int = 0) -> list[int]:
        np.ones((2, 2)) @ np.ones((2, 2))
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    with threadpool_limits(3), in_threads(2):
        before = of_libraries()
        assert set(before) == {3}
        outer = map_ordered(of_libraries, range(8))
        assert set(next(outer)[1]) == {1}
        with in_threads(1):  # another job, beside the one whose results are still being read
            assert {threads for _, found in map_ordered(of_libraries, range(8)) for threads in found} == {1}
            assert {threads for _, found in outer for threads in found} == {1}
        assert of_libraries() == before
