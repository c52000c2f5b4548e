"""Room on a cluster, and how long a job waits for it."""

from __future__ import annotations

import time

import pytest

from ghost_ray.cluster.nodes import places, reported_demand, wait_for_room
from ghost_ray.errors import JobFailed


def test_a_bundle_lies_on_one_node() -> None:
    gpu = {"CPU": 8.0, "GPU": 1.0}
    nodes = [{"CPU": 0.0, "GPU": 0.0}, {"CPU": 3.0, "GPU": 2.0}, {"CPU": 9.0, "GPU": 0.5}]
    assert places(nodes, {"CPU": 1, "GPU": 0.5}) == 4
    assert places([gpu, gpu], {"GPU": 2}) == 0
    assert places([{"CPU": 1.0, "GPU": 0.3}], {"GPU": 0.1}) == 3  # in floats 0.3 is a little less than three times 0.1
    assert places([{}], {"GPU": 1}) == 0


def test_room_that_is_there_is_not_waited_for(local_ray: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert wait_for_room("tasks", "a task", {"CPU": 1.0}, 1, 0.0)
    assert capsys.readouterr().err == ""


def test_waiting_is_said_with_the_demand_and_ends(
    local_ray: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ghost_ray.cluster.nodes._REPORT_SECONDS", 1.0)
    start = time.monotonic()
    with pytest.raises(JobFailed, match=r"waited 3 s for 2 actors with 1 GPU each without success: 0 of 2 could start"):
        wait_for_room("extract", "2 actors with 1 GPU each", {"GPU": 1.0}, 2, 3.0)
    assert time.monotonic() - start < 60
    said = capsys.readouterr().err
    assert "extract: waiting for 2 actors with 1 GPU each; the cluster has 0 GPUs" in said
    assert "0 of 2 could start in 1 s; Ray reports" in said


def test_what_ray_reports_is_one_line(local_ray: None) -> None:
    assert "\n" not in reported_demand()
