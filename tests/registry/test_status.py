"""``status --check`` and the metrics it writes: what a monitor is told, and when."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fault_table import Fault
from support.registries import make_promoted, make_version

from ghost_ray import registry
from ghost_ray.cli import main
from ghost_ray.config import build
from ghost_ray.config.refit_settings import PromoteConfig, RollbackConfig, StatusConfig
from ghost_ray.errors import GateFailed, InputError
from ghost_ray.files.json_files import sealed, unsealed
from ghost_ray.registry import Outcome, operations
from ghost_ray.registry.attempts import BAD
from ghost_ray.registry.status import StatusResult, status
from ghost_ray.registry.textfile import METRICS
from ghost_ray.registry.who import job_id


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
    assert [problem.partition(":")[0] for problem in problems(root)] == [
        "the newest version was rolled back and is held"
    ]
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


def test_what_was_rolled_back_is_told_until_a_refit_knows_better(root: str) -> None:
    first, second = registry.version_ids(root)
    registry.Attempt(root).end("promoted", version=second)
    assert problems(root) == []
    operations.rollback(RollbackConfig(root=root))
    assert len(problems(root)) == 1, "also where the last refit had promoted it"
    registry.Attempt(root).end("failed", reason="no disk")
    assert ["held" in problem for problem in problems(root)] == [True, False]
    registry.Attempt(root).end("refused", version="0003-0123456789ab", reason="a gate")
    assert [problem.partition(":")[0] for problem in problems(root)] == ["the last refit was refused by a gate"]
    registry.Attempt(root).end("held", version=first)
    assert len(problems(root)) == 1
    operations.promote(PromoteConfig(root=root, version=second))
    assert problems(root) == []


def samples_of(file: Path) -> dict[str, str]:
    """Values by name, and the outcome of the last refit by its own name."""
    found = dict(re.findall(r"^(\w+)\{registry=\"[^\"]+\"\} (\S+)$", file.read_text(), re.M))
    (outcome,) = re.findall(r"outcome=\"([^\"]+)\"\} 1$", file.read_text(), re.M)
    return found | {"outcome": outcome}


def rules_that_fire(samples: dict[str, str]) -> set[str]:
    """The alerts about how the last refit ended and about damage, by their own expressions."""
    rules = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "alerts.yaml").read_text())["groups"][0]["rules"]
    fired = set()
    for rule in rules:
        outcome = re.fullmatch(r'ghost_ray_refit_last_outcome\{outcome=~"([^"]+)"\} == 1', rule["expr"])
        equal = re.fullmatch(r"(ghost_ray_registry_(?:damaged|held)) == 1", rule["expr"])
        if (outcome and re.fullmatch(outcome[1], samples["outcome"])) or (equal and samples[equal[1]] == "1"):
            fired.add(rule["alert"])
    return fired


@pytest.mark.parametrize("outcome", Outcome.__args__)
def test_status_check_metrics_and_alerts_agree_on_every_outcome(root: str, tmp_path: Path, outcome: Any) -> None:
    registry.Attempt(root).end("up to date", version=registry.version_ids(root)[-1])
    if outcome == "interrupted":
        registry.Attempt(root)  # and never heard of again
    elif outcome != "running":
        registry.Attempt(root).end(outcome, version=registry.version_ids(root)[-1], reason="because")
    registry.Attempt(root).end("busy")
    file = tmp_path / "ghost_ray.prom"
    found = status(StatusConfig(root=root, metrics=str(file)))["problems"]
    samples = samples_of(file)
    assert samples["outcome"] == ("up to date" if outcome in ("running", "busy") else outcome)
    expected = {"held": {"GhostRayVersionHeld"}}.get(outcome, {"GhostRayRefitFailed"} if outcome in BAD else set())
    assert rules_that_fire(samples) == expected
    assert bool(found) == bool(expected)


def test_a_refit_that_works_while_another_was_turned_away_is_not_called_interrupted(root: str) -> None:
    registry.Attempt(root)  # killed
    working = registry.Attempt(root)
    with registry.hold(root, "refit", job=job_id()):
        registry.Attempt(root).end("busy")
        shown = status(StatusConfig(root=root, attempts=3))["attempts"]
        assert [attempt["outcome"] for attempt in shown] == ["busy", "running", "interrupted"]
    working.end("refused")
    assert "refused" in problems(root)[0]


@pytest.mark.parametrize("content", [b"", b"{}", None])
def test_metrics_say_damaged_when_the_pointer_is_destroyed(root: str, tmp_path: Path, content: bytes | None) -> None:
    registry.Attempt(root).end("up to date", version=registry.version_ids(root)[-1])
    file = tmp_path / "ghost_ray.prom"
    command = ["status", root, "--check", "--metrics", str(file)]
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert (stop.value.code, samples_of(file)["ghost_ray_registry_damaged"]) == (0, "0")
    for name in ("current.json", "current.backup.json"):
        Path(root, name).unlink() if content is None else Path(root, name).write_bytes(content)
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert stop.value.code == (1 if content is None else 2)
    assert samples_of(file)["ghost_ray_registry_damaged"] == "1"
    assert rules_that_fire(samples_of(file)) == {"GhostRayModelDamaged"}


def test_a_registry_in_which_nothing_was_ever_promoted_is_not_damaged(tmp_path: Path) -> None:
    root, file = str(tmp_path / "registry"), tmp_path / "ghost_ray.prom"
    make_version(root, "a")
    registry.Attempt(root).end("refused", reason="a gate")
    status(StatusConfig(root=root, metrics=str(file)))
    assert samples_of(file)["ghost_ray_registry_damaged"] == "0"
