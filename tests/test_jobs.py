"""Jobs under a real ``ray job submit`` on a cluster with token authentication."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import ROOT, Cluster, token_cluster
from grafana import metrics_on_the_dashboard
from refits import write_checkpoint, write_settings, write_world

from ghost_ray import registry
from ghost_ray.refit_config import StatusConfig
from ghost_ray.registry import commands

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
MODEL = "tests.networks:small"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with token_cluster() as running:
        yield running


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Pictures and a checkpoint of a test's own: the first test leaves a bad checkpoint behind."""
    write_world(tmp_path)
    return tmp_path


def current(world: Path) -> str:
    pointer = registry.current(str(world / "registry"))
    assert pointer is not None
    return pointer.version


def test_refits_by_job_submission(cluster: Cluster, world: Path) -> None:
    (world / "test" / "ant" / "rotten.png").write_bytes(b"no picture")
    config = write_settings(world, model=MODEL, known={"data": str(world / "test"), "max_failures": 0.1})

    with cluster.scraping("ray_ghost_ray_") as exported:
        first = cluster.submit("jobs/refit.py", "--config", config)
    assert first.returncode == 0, first.stdout + first.stderr
    made = current(world)
    assert f"Promoted {made}" in first.stdout
    assert re.search(rf"refit time=\S+ job=raysubmit_\w+ version={made} event=done stage=evaluate", first.stdout)

    assert exported >= metrics_on_the_dashboard()

    second = cluster.submit("jobs/refit.py", "--config", config, "--json", options=("--submission-id", "second"))
    assert second.returncode == 0, second.stdout + second.stderr
    assert '"outcome": "up to date"' in second.stdout
    assert cluster.job_seconds("second") < 15

    write_checkpoint(world / "weights.safetensors", world / "train", seed=1)
    third = cluster.submit("jobs/refit.py", "--config", config)
    assert third.returncode == 0, third.stdout + third.stderr
    newer = current(world)
    assert newer != made
    drift = json.loads((world / "registry" / "versions" / newer / "drift.json").read_text())
    assert (drift["previous"], drift["changed"]) == (made, ["weights"])
    assert drift["mean_shift"]["largest"] > 0

    write_checkpoint(world / "weights.safetensors", world / "train", confused=True)
    fourth = cluster.submit("jobs/refit.py", "--config", config)
    assert fourth.returncode == 1
    assert f"{newer} stays current: " in fourth.stdout
    assert "accuracy" in fourth.stdout
    assert "Traceback" not in fourth.stdout
    assert current(world) == newer
    outcomes = [
        attempt["outcome"] for attempt in commands.status(StatusConfig(root=str(world / "registry")))["attempts"]
    ]
    assert outcomes == ["refused", "promoted", "up to date", "promoted"]


def test_a_request_without_the_token_is_refused(cluster: Cluster) -> None:
    assert cluster.request("/api/jobs/") == 401
    assert cluster.request("/api/jobs/", "x" * 64) in (401, 403)
    assert cluster.request("/api/jobs/", cluster.token) == 200
    stranger = Cluster(cluster.dashboard, {**cluster.environment, "RAY_AUTH_TOKEN": "x" * 64}, "")
    refused = stranger.submit("jobs/refit.py", "--help")
    assert refused.returncode != 0


@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "jobs").glob("*.py")))
def test_a_wrong_option_ends_a_job_with_one_line(cluster: Cluster, script: str) -> None:
    done = cluster.submit(f"jobs/{script}", "--no-such-option")
    assert done.returncode == 1  # of `ray job submit`, for any failed job
    name = script.removesuffix(".py")
    assert re.search(rf"ghost-ray {name}: .*no-such-option", done.stdout)
    assert "exit code 2" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_stopped_job_stops_cleanly_and_goes_on_later(cluster: Cluster, world: Path, tmp_path: Path) -> None:
    config = write_settings(world, model=MODEL, registry=str(tmp_path / "registry"))
    submitted = cluster.submit("jobs/refit.py", "--config", config, options=("--no-wait", "--submission-id", "stopped"))
    assert submitted.returncode == 0, submitted.stderr
    deadline = time.monotonic() + 300
    while "stage=extract" not in (log := cluster.ray("job", "logs", "stopped").stdout):
        assert time.monotonic() < deadline, log
        time.sleep(1)
    assert cluster.ray("job", "stop", "stopped").returncode == 0
    assert "was stopped" in cluster.ray("job", "status", "stopped").stdout
    assert registry.current(str(tmp_path / "registry")) is None
    assert registry.holder(str(tmp_path / "registry"), "refit") is None
    (attempt,) = registry.last_attempts(str(tmp_path / "registry"), 5, running=False)
    assert attempt["outcome"] in ("stopped", "interrupted")
    done = cluster.submit("jobs/refit.py", "--config", config)
    assert done.returncode == 0, done.stdout
    assert registry.current(str(tmp_path / "registry")) is not None
