"""``status --check`` and the metrics it writes: what a monitor is told, and when."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.fault_table import Fault
from support.registries import make_promoted

from ghost_ray import registry
from ghost_ray.cli import main
from ghost_ray.config import build
from ghost_ray.config.refit_settings import RollbackConfig, StatusConfig
from ghost_ray.errors import GateFailed, InputError
from ghost_ray.files.json_files import sealed, unsealed
from ghost_ray.registry import operations
from ghost_ray.registry.status import StatusResult, status
from ghost_ray.registry.textfile import METRICS


@pytest.fixture
def root(tmp_path: Path) -> str:
    return make_promoted(str(tmp_path / "registry"), "ab")


def date_back(root: str, **ago: float) -> None:
    """As if the pointer had been moved so long ago."""
    file = Path(root, "current.json")
    content = unsealed(file.read_bytes())
    at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(**ago)
    content["history"][-1]["at"] = at.isoformat(timespec="seconds")
    file.write_bytes(sealed(content))


def problems(root: str, **options: Any) -> list[str]:
    found = status(StatusConfig(root=root, **{**options, "check": False, "max_age": None}))["problems"]
    try:
        status(StatusConfig(root=root, check=True, **options))
    except GateFailed as refusal:
        result: Any = refusal.result
        return list(result["problems"])
    assert found == []
    return []


def test_a_sound_and_fresh_version_passes(root: str) -> None:
    assert problems(root, max_age="48h") == []
    registry.Attempt(root).end("up to date", version=registry.version_ids(root)[-1])
    assert problems(root, max_age="48h") == []


@pytest.mark.fault("registry", "no refit confirms the current version for longer than `--max-age`")
def test_a_version_is_stale_when_no_refit_confirmed_it_for_too_long(root: str, fault: Fault) -> None:
    date_back(root, hours=50)
    (problem,) = problems(root, max_age="48h")
    assert "last confirmed 50:00:" in problem
    assert problems(root) == []
    registry.Attempt(root).end("busy")
    assert problems(root, max_age="48h")
    registry.Attempt(root).end("up to date", version=registry.version_ids(root)[-1])
    assert problems(root, max_age="48h") == []
    fault.ended("`status --check` exits 1 and says since when, until a refit promotes it or finds it up to date")


@pytest.mark.fault("registry", "the last refit failed, was refused, stopped or held")
@pytest.mark.parametrize("outcome", ["failed", "refused", "stopped", "held"])
def test_how_the_last_refit_ended_is_told_in_full(root: str, outcome: Any, fault: Fault) -> None:
    reason = "because " + "x" * 2000
    registry.Attempt(root).end(outcome, reason=reason)
    (problem,) = problems(root)
    assert ("held" in problem) if outcome == "held" else (reason in problem)
    registry.Attempt(root).end("busy")
    assert len(problems(root)) == 1, "another at the same time changes nothing"
    registry.Attempt(root).end("promoted", version=registry.version_ids(root)[-1])
    assert problems(root) == []
    fault.ended("`status --check` exits 1 with the reason in full, until a refit succeeds")


@pytest.mark.fault("registry", "the last refit was killed")
def test_a_killed_refit_and_a_rollback_are_told(root: str, fault: Fault) -> None:
    operations.rollback(RollbackConfig(root=root))
    assert problems(root) == ["the newest inputs are held: their version was rolled back"]
    registry.Attempt(root)
    assert problems(root)[-1] == "the last refit was interrupted"
    fault.ended("`status --check` exits 1 and says that it was interrupted")


def test_a_time_that_cannot_be_is_said_as_such(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    date_back(root, days=-3)
    seen: StatusResult = status(StatusConfig(root=root))
    assert seen["current"] is not None
    assert seen["current"]["age_seconds"] is None
    assert "in the future" in seen["problems"][0]
    with pytest.raises(SystemExit) as stop:
        main(["status", root, "--check"])
    assert stop.value.code == 1
    assert "a clock is wrong" in capsys.readouterr().out


def test_the_command_line_prints_the_state_and_ends_with_1(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    date_back(root, days=8)
    with pytest.raises(SystemExit) as stop:
        main(["status", root, "--check", "--max-age", "7d", "--json"])
    assert stop.value.code == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["problems"]
    assert printed.err.count("\n") == 1
    for wrong in ("2 weeks", "-3h", "0h", "h"):
        with pytest.raises(InputError):
            build(StatusConfig, {"root": root, "check": True, "max_age": wrong})
    with pytest.raises(InputError, match="needs"):
        build(StatusConfig, {"root": root, "max_age": "2h"})


def test_metrics_last_until_the_next_look(root: str, tmp_path: Path) -> None:
    registry.Attempt(root).end("held", reason="rolled back")
    file = tmp_path / "ghost_ray.prom"
    status(StatusConfig(root=root, metrics=str(file)))
    samples = dict(re.findall(r"^(\w+)\{registry=\"[^\"]+\"(?:,outcome=\"held\")?\} (\S+)$", file.read_text(), re.M))
    assert samples.keys() == METRICS.keys()
    assert samples["ghost_ray_registry_held"] == "1"
    assert samples["ghost_ray_registry_damaged"] == "0"
    moved = registry.current(root)
    assert moved is not None
    at = datetime.datetime.fromisoformat(moved.promoted).timestamp()
    assert float(samples["ghost_ray_registry_promoted_timestamp_seconds"]) == at
    with pytest.raises(InputError, match="cannot be written"):
        status(StatusConfig(root=root, metrics=str(file / "below")))
