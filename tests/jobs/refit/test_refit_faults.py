"""Refits that are killed anywhere, and two at once."""

from __future__ import annotations

import hashlib
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.fault_table import Fault
from support.job_processes import Job
from support.refits import write_settings, write_world

import ghost_ray
from ghost_ray import registry
from ghost_ray.files import read_json

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
RUNS, KILLS_PER_RUN = 2, 5
# Times, durations and the settings of where things lie differ from run to run.
_RUN_FACTS = {
    "created",
    "seal",
    "seconds",
    "fit_seconds",
    "score_seconds",
    "config",
    "uri",
    "registry",
    "store",
    "images_per_second",
}


def start(config: str) -> Job:
    return Job("refit", "--config", config, "--num-cpus", "2")


def without_run_facts(value: Any) -> Any:
    if isinstance(value, dict):
        # A store's fingerprint covers its manifest, and with it the time at which the store was made.
        left_out = _RUN_FACTS | ({"fingerprint"} if value.get("kind") == "store" else set())
        # Pages and manifests carry times, so their digests differ too; which files there are does not.
        return {
            key: sorted(item) if key == "digests" else without_run_facts(item)
            for key, item in value.items()
            if key not in left_out
        }
    return [without_run_facts(item) for item in value] if isinstance(value, list) else value


def state_of(root: Path) -> dict[str, Any]:
    """Everything that should not depend on how often a refit was killed."""
    pointer = registry.current(str(root))
    assert pointer is not None
    files = sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and path.relative_to(root).parts[0] not in ("attempts", ".locks")
    )
    version = root / "versions" / pointer.version
    tensors = sorted(version.rglob("*.safetensors"))
    return {
        "files": files,
        "history": [(step.version, step.previous, step.by) for step in pointer.history],
        "tensors": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tensors},
        "facts": {
            path.relative_to(version).as_posix(): without_run_facts(read_json(str(path)))
            for path in sorted(version.rglob("*.json"))
        },
    }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    return folder


@dataclass(frozen=True)
class Whole:
    """An uninterrupted run."""

    seconds: float
    state: dict[str, Any]


@pytest.fixture(scope="module")
def whole(world: Path) -> Whole:
    shutil.rmtree(world / "registry", ignore_errors=True)
    started = time.monotonic()
    start(write_settings(world)).wait().result()
    return Whole(time.monotonic() - started, state_of(world / "registry"))


@pytest.mark.fault("refit", "killed at ten random moments, alone or with the Ray it started")
@pytest.mark.parametrize("run", range(RUNS))
def test_killed_again_and_again_it_ends_like_an_uninterrupted_run(
    world: Path, whole: Whole, run: int, fault: Fault
) -> None:
    config = write_settings(world)
    shutil.rmtree(world / "registry")
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    moments = []
    for _ in range(KILLS_PER_RUN):
        victim = start(config)
        # Each victim resumes what the one before it left, so that one after another all stages are met.
        moments.append(whole.seconds * rng.uniform(0.1, 0.6))
        time.sleep(moments[-1])
        if rng.random() < 0.5:
            victim.kill()
        else:
            victim.kill_everything()
    ended = start(config).wait()
    told = f"seed {seed}, killed after {', '.join(f'{moment:.2f}' for moment in moments)} s"
    assert ended.code == 0, f"{told}: {ended.errors}"
    assert state_of(world / "registry") == whole.state, told
    fault.ended("the same command ends in the state of the uninterrupted run")


def test_two_at_once_and_a_reader_in_between(world: Path) -> None:
    shutil.rmtree(world / "registry", ignore_errors=True)
    root = str(world / "registry")
    start(write_settings(world)).wait().result()
    old = ghost_ray.load(root)
    config = write_settings(world, audit={"alpha": 0.01}, accept_known=0.8)
    both = [start(config), start(config)]
    seen: list[str] = []
    reads = 0
    while reads < 1000 or any(job.running() for job in both):
        loaded = ghost_ray.load(root)
        manifest = registry.read_version(root, str(loaded.version))
        assert loaded.threshold == manifest.summary["threshold"]
        if loaded.version not in seen:
            seen.append(str(loaded.version))
        reads += 1
    ended = [job.wait() for job in both]
    assert sorted(job.code for job in ended) in ([0, 1], [0, 0]), ended
    told = [job for job in ended if "another refit works on" in job.errors or "up to date" in job.output]
    assert len(told) == 1, ended
    pointer = registry.current(root)
    assert pointer is not None
    assert [step.version for step in pointer.history] == seen == [old.version, pointer.version]
    assert len(registry.version_ids(root)) == 2
