"""A stream that Ray lost something of is begun again for the rest; one that code ended is not."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from support.clusters import counted_gpus, several_raylets
from support.pictures import write_folder
from test_extract import make, rows_of

from ghost_ray.config.limits import STREAM_ROUNDS
from ghost_ray.errors import JobFailed
from ghost_ray.jobs.extract import blocks, job
from ghost_ray.jobs.extract import run as extract

pytestmark = pytest.mark.slow


class Actor:
    def answer(self) -> int:
        return 1


def lose_an_actor() -> None:
    actor = ray.remote(num_cpus=0)(Actor).remote()
    ray.kill(actor)
    ray.get(actor.answer.remote())


class Broken:
    def __init__(self) -> None:
        raise ValueError("it cannot begin")


def start_in_vain() -> None:
    ray.get(ray.remote(num_cpus=0)(Broken).remote().__ray_ready__.remote())


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with counted_gpus(1) as running:
        yield running


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Has each of the next streams end with what a function raises; gives how many groups of shards each was to do."""
    stream, seen = job.stream_on_ray, list[int]()

    def break_with(*failing: Callable[[], None]) -> list[int]:
        left = iter(failing)

        def streaming(stages: Any, remaining: Any, *others: Any) -> Iterator[Any]:
            seen.append(len(remaining))
            if (fail := next(left, None)) is not None:
                fail()
            yield from stream(stages, remaining, *others)

        monkeypatch.setattr(job, "stream_on_ray", streaming)
        return seen

    return break_with


def test_what_ray_lost_is_done_in_another_round(
    address: str, tmp_path: Path, rounds: Callable[..., list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    keys = write_folder(tmp_path / "data", 2)
    seen = rounds(lose_an_actor, lose_an_actor)
    extract(make(tmp_path / "store", tmp_path / "data", address=address, gpus_per_actor=0))
    assert sorted(rows_of(tmp_path / "store")) == sorted(keys)
    assert len(seen) == 3
    assert "another round processes the rest" in capsys.readouterr().err


def test_not_for_ever(address: str, tmp_path: Path, rounds: Callable[..., list[int]]) -> None:
    write_folder(tmp_path / "data", 2)
    seen = rounds(*[lose_an_actor] * 2 * STREAM_ROUNDS)
    with pytest.raises(JobFailed, match="finished work is kept; run the same command again"):
        extract(make(tmp_path / "store", tmp_path / "data", address=address, gpus_per_actor=0))
    assert len(seen) == STREAM_ROUNDS


def test_a_round_that_made_progress_does_not_count(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More losses than may follow in vain, each after one group more was done."""
    monkeypatch.setattr(blocks, "_GROUP_IMAGES", 1)
    write_folder(tmp_path / "some", 1)
    keys = [f"class-{number:02d}/00000.jpg" for number in range(4 * STREAM_ROUNDS)]
    for key in keys:
        (tmp_path / "data" / key).parent.mkdir(parents=True)
        shutil.copy(tmp_path / "some" / "ant" / "00000.jpg", tmp_path / "data" / key)
    stream, seen = job.stream_on_ray, list[int]()

    def one_group_and_a_loss(stages: Any, remaining: Any, *others: Any) -> Iterator[Any]:
        seen.append(len(remaining))
        yield from stream(stages, remaining[:1], *others)
        lose_an_actor()

    monkeypatch.setattr(job, "stream_on_ray", one_group_and_a_loss)
    extract(make(tmp_path / "store", tmp_path / "data", address=address, gpus_per_actor=0, unknown=True))
    assert sorted(rows_of(tmp_path / "store")) == sorted(keys)
    assert len(seen) > STREAM_ROUNDS


def test_a_lost_node_is_named_and_a_stream_that_waits_says_what_for(
    tmp_path: Path,
    rounds: Callable[..., list[int]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(job, "_SILENCE_SECONDS", 3.0)
    keys = write_folder(tmp_path / "data", 2)
    with several_raylets(2) as raylets:

        def lose_a_node_and_wait() -> None:
            raylets.kill(raylets.nodes[1])
            time.sleep(20)

        rounds(lose_a_node_and_wait)
        extract(make(tmp_path / "store", tmp_path / "data", address=raylets.address, gpus_per_actor=0))
    assert sorted(rows_of(tmp_path / "store")) == sorted(keys)
    said = capsys.readouterr().err
    assert "is lost; what it held is computed elsewhere" in said
    assert re.search(r"no block was finished for \d+ s; Ray reports ", said)


def test_not_where_the_same_would_happen_again(address: str, tmp_path: Path, rounds: Callable[..., list[int]]) -> None:
    write_folder(tmp_path / "data", 2)
    seen = rounds(start_in_vain)
    with pytest.raises(JobFailed, match="it cannot begin"):
        extract(make(tmp_path / "store", tmp_path / "data", address=address, gpus_per_actor=0))
    assert len(seen) == 1
