"""What goes wrong around a refit, and how the next one mends it: rows of the registry table."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.fault_table import Fault
from support.refits import files_below, same_world

import ghost_ray
from ghost_ray import registry
from ghost_ray.cli import main
from ghost_ray.config.refit_settings import RefitConfig, RollbackConfig, StatusConfig, VerifyConfig
from ghost_ray.errors import GateFailed, JobFailed
from ghost_ray.jobs.refit import inputs, run
from ghost_ray.registry import operations
from ghost_ray.registry.status import status
from ghost_ray.registry.verifying import verify


@pytest.mark.fault("registry", "the current version is damaged when a refit starts")
def test_a_damaged_version_is_healed_from_its_stores(world: Path, refitted: Path, fault: Fault) -> None:
    root = str(world / "registry")
    first = registry.current(root)
    assert first is not None
    version = world / "registry" / "versions" / first.version
    listed = registry.read_version(root, first.version).digests
    assert listed is not None
    assert files_below(version) == {*listed, "manifest.json"}, "every file of a version can be checked"
    file = version / "model" / "gaussians.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    planned = run(same_world(world, refitted, plan=True))
    assert (planned["outcome"], planned["changed"]) == ("planned", ["damage"])
    healed = run(same_world(world, refitted))
    assert (healed["outcome"], healed["changed"], healed["previous"]) == ("promoted", ["damage"], first.version)
    assert "extract" not in healed["seconds"]
    assert healed["version"][5:] == first.version[5:]
    assert ghost_ray.load(root).version == healed["version"]
    assert run(same_world(world, refitted))["outcome"] == "up to date"
    fault.ended("it is made again from its stores and promoted")


@pytest.mark.fault("registry", "the current version is damaged and `rollback` leaves it")
def test_a_damaged_version_that_was_rolled_back_is_made_again(
    world: Path, refitted: Path, capsys: pytest.CaptureFixture[str], fault: Fault
) -> None:
    root = str(world / "registry")

    def ends(*command: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stop:
            main([*command])
        return int(stop.value.code or 0), capsys.readouterr().out

    first = registry.current(root)
    assert first is not None
    settings = same_world(world, refitted, audit={"alpha": 0.014})
    second = run(settings)["version"]
    spoil(world, second)
    assert ends("status", root, "--check")[0] == 1
    assert ends("registry", "rollback", root)[0] == 0
    assert ghost_ray.load(root).version == first.version
    again = run(settings)
    assert (again["outcome"], again["version"][5:]) == ("promoted", second[5:])
    assert again["version"] != second
    assert ends("status", root, "--check")[0] == 0
    # One that was rolled back while it was intact stays back, whatever happens to it, until a person asks for it.
    assert ends("registry", "rollback", root)[0] == 0
    spoil(world, again["version"])
    assert run(settings)["outcome"] == "held"
    assert ends("registry", "promote", root, again["version"])[0] == 1
    third = run(settings)
    assert (third["outcome"], third["version"][5:]) == ("promoted", second[5:])
    assert run(settings)["outcome"] == "up to date"
    fault.ended("the next refit makes it again and promotes it; one that was already held, once a person promotes it")


def spoil(world: Path, version: str | None) -> None:
    file = world / "registry" / "versions" / str(version) / "model" / "gaussians.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.fault("registry", "a store that a refit would reuse is damaged")
def test_a_damaged_store_is_extracted_again(world: Path, refitted: Path, fault: Fault) -> None:
    rows = next((world / "registry" / "work" / "stores").glob("known-*/rows/*.arrow"))
    content = bytearray(rows.read_bytes())
    content[100] ^= 1
    rows.write_bytes(content)
    result = run(same_world(world, refitted, audit={"alpha": 0.011}))
    assert (result["outcome"], result["changed"]) == ("promoted", ["settings"])
    assert "extract" in result["seconds"]
    assert verify(VerifyConfig(place=str(world / "registry")))["damaged"] == []
    fault.ended("it is extracted again")


@pytest.mark.fault("registry", "the newest inputs were rolled back")
def test_what_was_rolled_back_is_not_promoted_again(world: Path, refitted: Path, fault: Fault) -> None:
    root = str(world / "registry")
    first = registry.current(root)
    assert first is not None
    changed = same_world(world, refitted, evaluate={"methods": ["ghost"], "draws": 2, "draw_size": 10})
    second = run(changed)["version"]
    operations.rollback(RollbackConfig(root=root))
    result = run(changed)
    assert (result["outcome"], result["version"]) == ("held", first.version)
    assert f"promotes {second}" in result["reason"]
    assert registry.version_ids(root) == [first.version, second]
    with pytest.raises(GateFailed, match="held"):
        status(StatusConfig(root=root, check=True))
    fault.ended("a refit exits 0 with `held`, and the current version stays; `status --check` exits 1")


def test_leftovers_of_a_killed_refit_are_taken_up_and_others_removed(world: Path, refitted: Path) -> None:
    root = world / "registry"
    stray = root / "versions" / f".0002-{'a' * 12}.partial" / "model"
    stray.mkdir(parents=True)
    unused = root / "work" / "stores" / f"fit-{'b' * 12}"
    unused.mkdir()
    config = same_world(world, refitted, audit={"alpha": 0.02})
    version = registry.new_id(str(root), inputs.read_inputs(config).fingerprint)
    # As after a kill between fit and audit.
    staging = root / "versions" / f".{version}.partial"
    first = registry.current(str(root))
    assert first is not None
    shutil.copytree(root / "versions" / first.version / "model", staging / "model")
    (staging / ".audit.partial").mkdir()
    result = run(config)
    assert result["version"] == version
    assert "fit" not in result["seconds"]
    assert {path.name for path in (root / "versions").iterdir()} == {first.version, version}
    assert not unused.exists()
    assert not [name for name in files_below(root / "versions" / version) if "partial" in name]


@pytest.mark.fault("registry", "killed between the version and the pointer")
def test_killed_between_the_version_and_the_pointer(
    world: Path, refitted: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    root = str(world / "registry")
    before = registry.current(root)
    assert before is not None
    config = same_world(world, refitted, audit={"alpha": 0.012})

    def killed(*_: Any, **__: Any) -> registry.Pointer:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(registry, "move", killed)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    made = registry.version_ids(root)[-1]
    assert made != before.version
    assert ghost_ray.load(root).version == before.version
    result = run(config)
    assert (result["outcome"], result["version"], result["seconds"]) == ("promoted", made, {})
    fault.ended("the old version serves; the next refit promotes the new one and computes nothing")


@pytest.mark.fault("registry", "weights or data change while a refit runs")
def test_data_that_change_while_a_refit_runs(
    world: Path, refitted: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    root, images = str(world / "registry"), world / "changing"
    shutil.copytree(refitted / "test", images)
    before, versions = registry.current(root), registry.version_ids(root)
    config = same_world(world, refitted, known={"data": str(images)})

    def read_and_change(config: RefitConfig) -> inputs.Inputs:
        found = inputs.read_inputs(config)
        shutil.copyfile(images / "ant" / "0000.png", images / "ant" / "late.png")
        return found

    with monkeypatch.context() as patch:
        patch.setattr("ghost_ray.jobs.refit.refit_job.read_inputs", read_and_change)
        with pytest.raises(JobFailed, match="changed while the refit ran") as caught:
            run(config)
    assert caught.value.exit_code == 1
    assert (registry.current(root), registry.version_ids(root)) == (before, versions)
    assert run(config)["outcome"] == "promoted"
    fault.ended("exit 1, and nothing is published; the next refit uses the new inputs")


@pytest.mark.fault("registry", "the report cannot be drawn")
def test_a_report_that_cannot_be_drawn(
    world: Path, refitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: Fault
) -> None:
    def no_page(_: Any) -> None:
        raise RuntimeError("no page today")

    monkeypatch.setattr("ghost_ray.report.run", no_page)
    result = run(same_world(world, refitted, audit={"alpha": 0.013}))
    assert result["outcome"] == "promoted"
    assert "event=no_report" in capsys.readouterr().err
    assert "report.html" not in files_below(world / "registry" / "versions" / result["version"])
    assert verify(VerifyConfig(place=str(world / "registry")))["damaged"] == []
    fault.ended("the version is published without it; the log says so")
