"""Ray tasks: results in order, what a task raises arrives as it was raised, dead workers are replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ghost_ray.cluster import map_merge, map_ordered, ray_session
from ghost_ray.config import RayJobConfig
from ghost_ray.errors import InputError, JobFailed

pytestmark = pytest.mark.usefixtures("local_ray")


def _add(item: int, offset: int) -> int:
    return item + offset


def _refuse(item: int) -> int:
    raise InputError("store", "x", f"row {item} is wrong", "extract again")


def _break(item: int) -> int:
    raise ZeroDivisionError("deep inside")


def _die_once(item: int, folder: str) -> int:
    mark = Path(folder) / str(item)
    if item == 3 and not mark.exists():
        mark.touch()
        os._exit(1)
    return item


def _compiled_code(_: int) -> str:
    from ghost_ray.normality import shapiro

    return str(shapiro._transpose_into.machine_code().stats.cache_path)


def test_workers_keep_compiled_code_where_the_driver_does() -> None:
    here = _compiled_code(0)
    assert Path(here).is_dir()
    assert [path for _, path in map_ordered(_compiled_code, range(2))] == [here, here]


def test_results_come_in_the_items_order() -> None:
    assert list(map_ordered(_add, range(20), 100)) == [(i, i + 100) for i in range(20)]


def test_a_wrong_input_found_by_a_task_reaches_the_user_as_such() -> None:
    with pytest.raises(InputError, match="row 0 is wrong") as caught, ray_session(RayJobConfig()):
        list(map_ordered(_refuse, range(3)))
    assert (caught.value.field, caught.value.exit_code) == ("store", 2)


def _refuse_the_first(item: int, folder: str) -> int:
    if item == 0:
        raise InputError("store", "x", "row 0 is wrong", "extract again")
    (Path(folder) / str(item)).touch()
    return item


def test_an_error_in_the_first_piece_ends_a_merge_before_the_rest_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="row 0 is wrong"), ray_session(RayJobConfig()):
        map_merge(_refuse_the_first, range(300), sum, str(tmp_path))
    assert len(list(tmp_path.iterdir())) < 100, "one window of tasks, not all of them"


def test_any_other_error_is_one_line() -> None:
    with (
        pytest.raises(JobFailed, match=r"a task failed on [\d.]+: ZeroDivisionError: deep inside") as caught,
        ray_session(RayJobConfig()),
    ):
        list(map_ordered(_break, range(3)))
    assert "\n" not in str(caught.value)


def test_a_failed_job_cancels_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's driver dies without a word where a task ends while it is being cancelled."""
    import ray

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a task was cancelled")

    monkeypatch.setattr(ray, "cancel", never)
    with pytest.raises(InputError, match="row 0 is wrong"), ray_session(RayJobConfig()):
        list(map_ordered(_refuse, range(30)))
    tasks = map_ordered(_add, range(30), 100)
    next(tasks)
    tasks.close()
    assert list(map_ordered(_add, range(3), 0)) == [(i, i) for i in range(3)]


def test_a_dead_worker_is_replaced(tmp_path: Path) -> None:
    assert [r for _, r in map_ordered(_die_once, range(6), str(tmp_path))] == list(range(6))
