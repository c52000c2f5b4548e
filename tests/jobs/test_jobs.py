"""Jobs under a real ``ray job submit`` on a cluster with token authentication."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.clusters import ROOT, Cluster, token_cluster
from support.fake_endpoints import fake_endpoint
from support.grafana import metrics_on_the_dashboard
from support.job_processes import run
from support.refits import write_checkpoint, write_settings, write_world
from support.stores import Toy, write_store

from ghost_ray import registry
from ghost_ray.config.refit_settings import PromoteConfig, RollbackConfig, StatusConfig
from ghost_ray.registry import operations
from ghost_ray.registry.status import status

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
MODEL = "tests.support.networks:small"  # as the job's working directory has it


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


def refit(cluster: Cluster, *words: str) -> tuple[int, dict[str, Any], str]:
    """The line of a crontab: its exit code, the answer in its log, and the log."""
    done = cluster.run("deploy/submit-refit.sh", *words)
    assert "Traceback" not in done.stdout
    # Of a job that failed, `ray job submit` shows the end of the log again.
    answers = {line for line in done.stdout.splitlines() if line.startswith('{"outcome"')}
    assert len(answers) == 1, done.stdout + done.stderr
    answer = json.loads(answers.pop())
    assert answer["exit_code"] == done.returncode
    assert answer["reason"]
    return done.returncode, answer, done.stdout


def test_refits_by_job_submission(cluster: Cluster, world: Path) -> None:
    (world / "test" / "ant" / "rotten.png").write_bytes(b"no picture")
    known = {"data": str(world / "test"), "max_failures": 0.1}
    config = write_settings(world, model=MODEL, known=known)

    with cluster.scraping("ray_ghost_ray_") as exported:
        code, first, log = refit(cluster, "--config", config)
    made = current(world)
    assert (code, first["outcome"], first["version"], first["todo"]) == (0, "promoted", made, "nothing")
    assert f"Promoted {made}" in log
    assert re.search(rf"refit time=\S+ job=raysubmit_\w+ version={made} event=done stage=evaluate", log)
    assert exported >= metrics_on_the_dashboard()
    images = "ray_ghost_ray_extract_images_total"
    assert exported >= {f"{images} by job", f"{images} by store"}

    code, second, log = refit(cluster, "--config", config, "--json")
    assert (code, second["outcome"], second["todo"]) == (0, "up to date", "nothing")

    write_checkpoint(world / "weights.safetensors", world / "train", seed=1)
    code, third, _ = refit(cluster, "--config", config)
    newer = current(world)
    assert (code, third["outcome"], third["previous"]) == (0, "promoted", made)
    assert newer != made
    drift = json.loads((world / "registry" / "versions" / newer / "drift.json").read_text())
    assert (drift["previous"], drift["changed"]) == (made, ["weights"])
    assert drift["mean_shift"]["largest"] > 0

    operations.rollback(RollbackConfig(root=str(world / "registry")))
    code, held, _ = refit(cluster, "--config", config)
    assert (code, held["outcome"], held["version"]) == (0, "held", made)
    assert held["todo"].startswith("promote the held version")
    operations.promote(PromoteConfig(root=str(world / "registry"), version=newer))

    write_checkpoint(world / "weights.safetensors", world / "train", confused=True)
    code, refused, log = refit(cluster, "--config", config)
    assert (code, refused["outcome"]) == (1, "refused")
    assert f"{newer} stays current: " in refused["reason"]
    assert "accuracy" in log
    assert current(world) == newer
    outcomes = [attempt["outcome"] for attempt in status(StatusConfig(root=str(world / "registry")))["attempts"]]
    assert outcomes == ["refused", "held", "promoted", "up to date", "promoted"]


def test_what_may_be_run_again_and_what_a_person_must_change(cluster: Cluster, world: Path) -> None:
    config = write_settings(world, model=MODEL)
    with registry.hold(str(world / "registry"), "refit", job="the-first"):
        code, busy, _ = refit(cluster, "--config", config)
    assert (code, busy["outcome"], busy["todo"]) == (1, "busy", "run it again later")
    assert "job the-first" in busy["reason"]
    with fake_endpoint("refused") as store:
        code, failed, _ = refit(
            cluster, "--config", write_settings(world, model=MODEL, registry=store.uri("b/registry"))
        )
    assert (code, failed["outcome"]) == (1, "failed")
    assert "cannot be reached" in failed["reason"]
    assert "run the same command again" in failed["todo"]
    code, wrong, _ = refit(cluster, "--config", write_settings(world, model=MODEL, gates={"max_auoscr_drop": 7}))
    assert (code, wrong["outcome"]) == (2, "failed")
    assert "gates.max_auoscr_drop" in wrong["reason"]
    assert "change what the reason names" in wrong["todo"]
    lost = cluster.run("env", "RAY_ADDRESS=http://127.0.0.1:9", "deploy/submit-refit.sh", "--config", config)
    assert lost.returncode == 1


def test_a_request_without_the_token_is_refused(cluster: Cluster) -> None:
    assert cluster.request("/api/jobs/") == 401
    assert cluster.request("/api/jobs/", "x" * 64) in (401, 403)
    assert cluster.request("/api/jobs/", cluster.token) == 200
    stranger = Cluster(cluster.dashboard, {**cluster.environment, "RAY_AUTH_TOKEN": "x" * 64}, "")
    refused = stranger.submit("jobs/refit.py", "--help")
    assert refused.returncode != 0


def test_a_driver_without_the_token_is_told_what_is_missing(cluster: Cluster, tmp_path: Path) -> None:
    toy = Toy.make(np.random.default_rng(0))
    write_store(tmp_path / "store", *toy.known(np.random.default_rng(1), 20), toy)
    ended = run("fit", str(tmp_path / "store"), "--out", str(tmp_path / "model"), "--address", cluster.gcs)
    assert ended.code == 2
    assert f"--address '{cluster.gcs}': cannot be joined: " in ended.errors
    assert "a cluster with tokens needs RAY_AUTH_MODE=token and the token in ~/.ray/auth_token" in ended.errors


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
    (attempt,) = registry.last_attempts(str(tmp_path / "registry"), 5, running=None)
    assert attempt["outcome"] in ("stopped", "interrupted")
    done = cluster.submit("jobs/refit.py", "--config", config)
    assert done.returncode == 0, done.stdout
    assert registry.current(str(tmp_path / "registry")) is not None
