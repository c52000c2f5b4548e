"""Refits of a small network: what triggers them, what they publish, and when they refuse."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.refits import NAMES, config_of, files_below, same_world, write_pictures, write_settings
from support.registries import make_version

import ghost_ray
from ghost_ray import registry
from ghost_ray.cluster import threads
from ghost_ray.config.refit_settings import RefitConfig, RegistryConfig, StatusConfig
from ghost_ray.errors import GateFailed, GhostRayError, InputError
from ghost_ray.files import read_json
from ghost_ray.jobs import fingerprints
from ghost_ray.jobs.fit import fit_store
from ghost_ray.jobs.refit import run
from ghost_ray.registry import looking
from ghost_ray.registry.status import status as look_at
from ghost_ray.store import Store

VERSION_FILES = {
    "manifest.json",
    "drift.json",
    "report.html",
    "model/manifest.json",
    "model/gaussians.safetensors",
    "model/statistics.safetensors",
    "model/thresholds.json",
    "audit/manifest.json",
    "audit/summary.json",
    "audit/normality.parquet",
    "evaluation/manifest.json",
    "evaluation/metrics.json",
}


def test_a_refit_publishes_a_whole_version_and_leaves_nothing_else(refitted: Path) -> None:
    root = refitted / "registry"
    pointer = registry.current(str(root))
    assert pointer is not None
    (version,) = (root / "versions").iterdir()
    assert version.name == pointer.version
    assert files_below(version) >= VERSION_FILES
    assert not [name for name in files_below(root) if "partial" in name or name.endswith(".tmp")]
    manifest = registry.read_version(str(root), pointer.version)
    assert all(gate["passed"] for gate in manifest.gates)
    assert set(manifest.inputs) == {
        "weights", "data.fit", "data.known", "data.unknown.violet", "settings", "results", "software",
    }  # fmt: skip
    summary = manifest.summary
    assert summary["accuracy"] > 0.8
    assert summary["accuracy_on"] == "known"
    assert summary["auoscr"].keys() == {"violet"}
    loaded = ghost_ray.load(str(root))
    assert loaded.threshold == summary["threshold"]
    assert loaded.model.gaussians.mean.shape == (4, 16)
    assert loaded.model.manifest.network.weights_sha256 == manifest.inputs["weights"]


def test_nothing_changed_is_said_without_torch_or_ray(refitted: Path) -> None:
    path = write_settings(refitted)
    code = (
        "import sys; from ghost_ray.config import build; from ghost_ray.config.refit_settings import RefitConfig\n"
        f"from ghost_ray.jobs.refit import run; print(run(build(RefitConfig, {{}}, {path!r}))['outcome'])\n"
        "print(sorted({'torch', 'ray', 'timm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["up to date", "[]"]
    assert "event=up_to_date" in done.stderr


def test_the_command_line_says_so_too(refitted: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ghost_ray", "refit", "--config", write_settings(refitted)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["outcome"]) == (0, "up to date")


def test_changed_settings_make_a_new_version_from_the_old_stores(world: Path, refitted: Path) -> None:
    stores = world / "registry" / "work" / "stores"
    before = {path: path.stat().st_mtime_ns for path in stores.rglob("*")}
    first = registry.current(str(world / "registry"))
    assert first is not None
    result = run(same_world(world, refitted, audit={"alpha": 0.01}))
    assert (result["outcome"], result["previous"], result["changed"]) == ("promoted", first.version, ["settings"])
    assert {path: path.stat().st_mtime_ns for path in stores.rglob("*")} == before
    assert not {"extract", "fit", "evaluate"} & result["seconds"].keys(), "only the audit has other settings"
    assert "audit" in result["seconds"]
    drift = read_json(str(world / "registry" / "versions" / result["version"] / "drift.json"))
    assert drift["previous"] == first.version
    assert drift["accuracy"][0] == drift["accuracy"][1]
    assert drift["rejected_fraction"][1] < drift["rejected_fraction"][0]
    assert drift["mean_shift"]["largest"] == 0.0
    assert drift["classes_gained"] == drift["classes_lost"] == []
    assert (world / "registry" / "versions" / result["version"] / "audit" / "summary.json").is_file()
    status = look_at(StatusConfig(root=str(world / "registry")))
    assert status["current"]["version"] == result["version"]
    assert status["attempts"][0]["outcome"] == "promoted"


def test_a_gate_keeps_the_current_version_and_asks_again_without_new_work(world: Path, refitted: Path) -> None:
    root = str(world / "registry")
    first = registry.current(root)
    assert first is not None
    strict = same_world(world, refitted, audit={"alpha": 0.2}, gates={"max_rejected_fraction": 0.0})
    with pytest.raises(GateFailed, match=f"{first.version} stays current: normality rejected in") as refusal:
        run(strict)
    assert refusal.value.result is not None, "for --json"
    assert [gate["name"] for gate in refusal.value.result["gates"] if not gate["passed"]] == ["max_rejected_fraction"]
    assert registry.current(root) == first
    refused = registry.version_ids(root)[-1]
    made = (world / "registry" / "versions" / refused / "manifest.json").stat().st_mtime_ns
    with pytest.raises(GateFailed, match=refused):
        run(strict)
    listed = looking.list_versions(RegistryConfig(root=root))["versions"]
    assert listed[0]["refused_by"] == ["max_rejected_fraction"]
    assert [a["outcome"] for a in registry.last_attempts(root, 2, running=None)] == ["refused", "refused"]
    result = run(same_world(world, refitted, audit={"alpha": 0.2}))
    assert (result["outcome"], result["version"]) == ("promoted", refused)
    assert (world / "registry" / "versions" / refused / "manifest.json").stat().st_mtime_ns == made


def test_two_at_once_one_works_and_the_other_leaves(
    world: Path, refitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ghost_ray.jobs.refit.refit_job._LOCK_SECONDS", 0.1)
    config = same_world(world, refitted, audit={"alpha": 0.03})
    root = str(world / "registry")
    before = registry.current(root)
    with registry.hold(root, "refit", job="the-first"), pytest.raises(registry.Busy, match="job the-first"):
        run(config)
    assert registry.current(root) == before
    assert registry.last_attempts(root, 1, running=None)[0]["outcome"] == "busy"
    assert registry.Busy("").exit_code == 1


def test_no_secret_of_a_uri_reaches_manifest_or_log(
    world: Path, refitted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(world / "registry")
    with pytest.raises(GhostRayError):
        run(same_world(world, refitted, fit={"data": "s3://key:topsecret@bucket/nothing?scheme=nonsense"}))
    written = "".join(path.read_text() for path in Path(root, "attempts").iterdir())
    assert "topsecret" not in written + capsys.readouterr().err


def test_versions_made_elsewhere_do_not_confuse_a_refit(world: Path, refitted: Path) -> None:
    root = str(world / "registry")
    other = make_version(root, "somebody else's")
    result = run(same_world(world, refitted, audit={"alpha": 0.04}))
    assert result["version"].startswith("0003-")
    assert other in registry.version_ids(root)
    assert os.path.isdir(os.path.join(root, "versions", other))


@pytest.fixture
def five_more_of_each(refitted: Path) -> Iterator[None]:
    write_pictures(refitted / "train", 5, seed=11, first=90)
    yield
    for path in refitted.glob("train/*/009?.png"):
        path.unlink()


@pytest.mark.usefixtures("five_more_of_each")
def test_data_that_only_grew_is_extracted_in_part_and_its_statistics_merged(
    world: Path, refitted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = world / "registry"
    first = registry.current(str(root))
    assert first is not None
    before = registry.read_version(str(root), first.version)
    result = run(same_world(world, refitted))
    assert result["changed"] == ["data.fit"]
    assert "extract: 20/20 images" in capsys.readouterr().err
    manifest = registry.read_version(str(root), result["version"])
    store = Store.open(str(root / "work" / "stores" / manifest.stores["fit"]))
    assert store.manifest.model_extra is not None
    assert store.manifest.model_extra["grown_from"] == before.stores["fit"]
    keys = {key for groups in store.row_groups() for key in store.read_small(groups, "key")["key"].to_pylist()}
    assert keys == {path.relative_to(refitted / "train").as_posix() for path in refitted.glob("train/*/*.png")}
    with threads():
        merged, at_once = ghost_ray.load(str(root)).model.gaussians, fit_store(store).finish()
    np.testing.assert_array_equal(merged.count, at_once.count)
    np.testing.assert_array_max_ulp(merged.mean, at_once.mean, 1)
    np.testing.assert_array_max_ulp(merged.std, at_once.std, 1)
    assert {path.name.split(".")[0] for path in (root / "work" / "stores").iterdir()} == {
        name.split(".")[0] for name in manifest.stores.values()
    }


def test_a_patch_release_computes_nothing_and_another_torch_everything(
    world: Path, refitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = fingerprints.installed_libraries()
    monkeypatch.setattr("ghost_ray.__version__", "9.9.9")
    monkeypatch.setattr("ghost_ray.files.manifest.__version__", "9.9.9")
    major, minor, _ = here["torch"].split(".", 2)

    def outcome(torch: str, strict: str) -> tuple[str, list[str]]:
        monkeypatch.setattr("ghost_ray.jobs.refit.inputs.installed_libraries", lambda: {**here, "torch": torch})
        result = run(same_world(world, refitted, strict=strict, plan=True))
        return result["outcome"], [step["what"] for step in result.get("steps", []) if step["action"] == "compute"]

    everything = [
        "store.fit", "store.known", "store.unknown.violet", "model", "audit", "evaluation",
    ]  # fmt: skip
    later = f"{major}.{minor}.999"
    assert outcome(here["torch"], "any") == ("up to date", [])
    assert outcome(later, "minor") == ("up to date", [])
    assert outcome(later, "any") == ("planned", everything)
    assert outcome(f"{major}.{int(minor) + 1}.0", "minor") == ("planned", everything)
    assert outcome("99.0.0", "never") == ("up to date", [])


def test_a_head_narrowed_by_the_fit_is_narrowed_everywhere(refitted: Path, tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name in NAMES[1:]:
            shutil.copytree(refitted / part / name, tmp_path / part / name)
    table = tmp_path / "classes.txt"
    table.write_text("".join(f"{name} {index}\n" for index, name in enumerate(NAMES[1:], start=1)))

    def narrowed(**more: Any) -> RefitConfig:
        return config_of(
            refitted,
            registry=str(tmp_path / "narrowed"),
            fit={"data": str(tmp_path / "train"), "classes": str(table), "restrict": True},
            known={"data": str(tmp_path / "test"), "classes": str(table)},
            **more,
        )

    assert run(narrowed())["outcome"] == "promoted"
    version = ghost_ray.load(str(tmp_path / "narrowed"))
    assert version.model.manifest.network.restricted_to == [1, 2, 3]
    assert run(narrowed())["outcome"] == "up to date"
    # More images of the same classes: the head stays as narrow, so the test sets are as they were.
    shutil.copyfile(tmp_path / "train" / "bee" / "0000.png", tmp_path / "train" / "bee" / "new.png")
    planned = run(narrowed(plan=True))
    assert planned["changed"] == ["data.fit"]
    assert {step["what"]: step["action"] for step in planned["steps"] if step["what"].startswith("store")} == {
        "store.fit": "compute",
        "store.known": "use",
        "store.unknown.violet": "use",
    }
    shutil.rmtree(tmp_path / "train" / "bee")
    assert run(narrowed(plan=True))["changed"] == ["data.fit", "data.known", "data.unknown.violet"]


def test_gates_that_cannot_pass_are_told_before_anything_is_extracted(refitted: Path, tmp_path: Path) -> None:
    for name in NAMES[1:]:
        shutil.copytree(refitted / "train" / name, tmp_path / "train" / name)
    table = tmp_path / "classes.txt"
    table.write_text("".join(f"{name} {index}\n" for index, name in enumerate(NAMES)))
    fit = {"data": str(tmp_path / "train"), "classes": str(table)}
    with pytest.raises(InputError, match=r"1 of the network's 4 classes have fewer than two images.*restrict: true"):
        run(config_of(refitted, registry=str(tmp_path / "registry"), fit=fit))
    assert not list((tmp_path / "registry").glob("work/stores/fit-*/"))
