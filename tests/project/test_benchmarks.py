"""The arithmetic of the scaling benchmark, on runs worked out by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from scale import Work, steady_rate, steady_rate_of_cores


def device(first: float, batches: int, seconds: float = 1.0, pause: float = 0.0) -> list[Work]:
    starts = [first + number * (seconds + pause) for number in range(batches)]
    return [Work(start, start + seconds, 64) for start in starts]


def test_devices_that_never_wait_reach_the_ideal() -> None:
    assert steady_rate([device(0, 10), device(0.5, 10), device(2.25, 10)], 3) == pytest.approx(3 * 64)


def test_devices_that_wait_half_of_the_time() -> None:
    assert steady_rate([device(0, 50, pause=1), device(0.5, 50, pause=1)], 2) == pytest.approx(64, rel=0.03)


def test_what_comes_before_the_last_has_begun_does_not_count() -> None:
    assert steady_rate([device(0, 100), device(50, 50)], 2) == pytest.approx(2 * 64)


@pytest.mark.parametrize(
    "workers",
    [
        [device(0, 10)],  # three of four never got a batch
        [device(0, 3), device(100, 3)],  # one had ended when the next began
        [device(0, 1)],
    ],
)
def test_starved_devices_give_a_low_rate_and_no_crash(workers: list[list[Work]]) -> None:
    assert 0 <= steady_rate(workers, 4) <= 64


def core(first: float, blocks: int, pause: float = 0.0) -> list[Work]:
    """A process that decodes blocks of ten pictures, a second each."""
    starts = [(number, first + number * (10 + pause)) for number in range(blocks)]
    return [Work(start + at, start + at + 1, 1, f"{first}-{number}") for number, start in starts for at in range(10)]


def test_cores_may_be_more_processes_than_cores() -> None:
    # Two cores and three processes, of which the third takes over from the first.
    assert steady_rate_of_cores([core(0, 3), core(0.5, 6), core(30, 3)], 2) == pytest.approx(2, rel=0.03)


def test_the_time_after_the_last_block_was_begun_does_not_count() -> None:
    # One core has its last block when the other has long had none.
    assert steady_rate_of_cores([core(0, 5), core(1, 4)], 2) == pytest.approx(2)


def test_cores_that_wait_between_blocks() -> None:
    assert steady_rate_of_cores([core(0, 50, pause=10), core(0.5, 50, pause=10)], 2) == pytest.approx(1, rel=0.03)


def test_cores_that_never_begin_make_the_whole_time_count() -> None:
    assert steady_rate_of_cores([core(0, 5)], 4) == pytest.approx(1)
