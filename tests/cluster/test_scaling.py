"""What a cluster may become, and how long a job waits for it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ghost_ray.cluster import ray_interfaces, scaling
from ghost_ray.cluster.ray_interfaces import AutoscalerReport, AutoscalingConfig, NodeType
from ghost_ray.cluster.scaling import NoRoom, largest_cluster, places, wait_for_places
from ghost_ray.errors import JobFailed

HEAD = {"CPU": 0.0, "GPU": 0.0}
GPU = {"CPU": 8.0, "GPU": 1.0}
CPU = {"CPU": 16.0, "GPU": 0.0}


def test_a_bundle_lies_on_one_node() -> None:
    assert places([HEAD, {"CPU": 3.0, "GPU": 2.0}, {"CPU": 9.0, "GPU": 0.5}], {"CPU": 1, "GPU": 0.5}) == 4
    assert places([GPU, GPU], {"GPU": 2}) == 0
    assert places([{"CPU": 1.0, "GPU": 0.3}], {"GPU": 0.1}) == 3  # in floats 0.3 is a little less than three times 0.1
    assert places([{}], {"GPU": 1}) == 0


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster of these nodes, whose autoscaler may do this and says that."""

    def make(nodes: Any, config: AutoscalingConfig | None = None, reports: tuple[AutoscalerReport, ...] = ()) -> None:
        said = list(reports)
        monkeypatch.setattr(scaling, "alive_nodes", nodes if callable(nodes) else lambda: nodes)
        monkeypatch.setattr(scaling, "autoscaling_config", lambda: config)
        monkeypatch.setattr(scaling, "autoscaler_report", lambda: said.pop(0) if said else None)
        monkeypatch.setattr(scaling, "_asking_for", lambda *_: contextlib.nullcontext())
        monkeypatch.setattr(scaling, "_POLL_SECONDS", 0.0)
        monkeypatch.setattr(scaling, "JOIN_PATIENCE", 0.0)

    return make


def test_the_largest_cluster_has_every_node_type_at_its_limit(cluster: Any) -> None:
    kinds = (NodeType(GPU, 3), NodeType(CPU, 2))
    cluster([HEAD, GPU], AutoscalingConfig(kinds, 100))
    largest = largest_cluster()
    assert largest is not None
    assert (places(largest, {"GPU": 1}), places(largest, {"CPU": 16})) == (3, 2)
    cluster([HEAD, GPU], AutoscalingConfig(kinds, 4))
    largest = largest_cluster()
    assert largest is not None
    assert len(largest) == 5
    cluster([HEAD, GPU])
    assert largest_cluster() is None


def test_what_no_node_type_holds_is_refused_at_once(cluster: Any) -> None:
    cluster([HEAD], AutoscalingConfig((NodeType(GPU, 3),), 3))
    with pytest.raises(NoRoom, match=r"GPUs: 0\), and with every node type at its limit there is room for only 3"):
        wait_for_places("extract", "4 actors", {"GPU": 1}, 4, 4)


def test_what_may_come_is_waited_for(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    now = [[HEAD], [HEAD], [HEAD, GPU], [HEAD, GPU, GPU]]
    cluster(lambda: now.pop(0) if len(now) > 1 else now[0], AutoscalingConfig((NodeType(GPU, 2),), 2))
    assert len(wait_for_places("extract", "2 actors", {"GPU": 1}, 2, 2)) == 3
    told = capsys.readouterr().err
    assert "extract: 2 actors: no room on the existing nodes (GPUs: 0); waiting for nodes to join" in told
    assert "extract: room for 2 actors after" in told


def test_nobody_waits_for_ever(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster([HEAD], AutoscalingConfig((NodeType(GPU, 2),), 2))
    monkeypatch.setattr(scaling, "NODE_PATIENCE", 0.0)
    with pytest.raises(JobFailed, match="minutes for nodes without success; an actor"):
        wait_for_places("extract", "an actor", {"GPU": 1}, 1, 1)


@pytest.mark.parametrize(
    "reports",
    [
        pytest.param((), id="there is no autoscaler"),
        pytest.param((AutoscalerReport("1", False), AutoscalerReport("2", False)), id="it looked and does nothing"),
        pytest.param(
            (
                AutoscalerReport("1", False),
                AutoscalerReport("1", False),  # it has not looked since
                AutoscalerReport("2", True),  # a node is on its way
                AutoscalerReport("3", False),
            ),
            id="it gave up",
        ),
    ],
)
def test_where_no_limit_is_known_the_autoscaler_is_watched(cluster: Any, reports: Any) -> None:
    asked = []
    cluster(lambda: asked.append(1) or [HEAD], None, reports)
    with pytest.raises(NoRoom, match="and no node is starting"):
        wait_for_places("extract", "an actor", {"GPU": 1}, 1, 1)
    assert len(asked) == 1 + max(1, len(reports) - 1)


def test_node_types_are_found_by_the_command_line_of_the_autoscaler(tmp_path: Path) -> None:
    config = {
        "max_workers": 5,
        "head_node_type": "head",
        "available_node_types": {
            "head": {"resources": {"CPU": 0}},
            "gpu": {"resources": {"CPU": 8, "GPU": 1}, "max_workers": 3},
            "cpu": {"resources": {"CPU": 16}},
        },
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    words = ["--gcs-address=10.0.0.1:6379", f"--autoscaling-config={file}"]
    process = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()", *words], stdin=-1, stdout=-1)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        found = ray_interfaces._config_of_autoscaler("10.0.0.1:6379")
        assert found == AutoscalingConfig((NodeType({"CPU": 8, "GPU": 1}, 3), NodeType({"CPU": 16}, 5)), 5)
        assert ray_interfaces._config_of_autoscaler("10.0.0.2:6379") is None
    finally:
        process.communicate(b"\n")
