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
from refits import NAMES, config_of, write_pictures, write_settings, write_world
from registries import make_version

import ghost_ray
from ghost_ray import registry
from ghost_ray.config import ExtractConfig
from ghost_ray.errors import GateFailed, InputError
from ghost_ray.extract.plan import make_plan
from ghost_ray.files import read_json
from ghost_ray.fit import fit_store
from ghost_ray.manifest import provenance
from ghost_ray.refit import growth, run
from ghost_ray.refit.inputs import read_inputs
from ghost_ray.refit_config import RefitConfig, RegistryConfig, StatusConfig
from ghost_ray.registry import commands
from ghost_ray.store import Store, StoreManifest, finish_store

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


@pytest.fixture(scope="module")
def refitted(tmp_path_factory: pytest.TempPathFactory, local_ray: None) -> Path:
    """A world in which one refit has been made."""
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    result = run(config_of(folder))
    assert result["outcome"] == "promoted"
    assert result["previous"] is None
    return folder


@pytest.fixture
def world(refitted: Path, tmp_path: Path) -> Path:
    """The same world, with a registry of this test's own."""
    for item in refitted.iterdir():
        if item.name != "registry":
            (tmp_path / item.name).symlink_to(item)
    shutil.copytree(refitted / "registry", tmp_path / "registry", symlinks=True)
    return tmp_path


def same_world(world: Path, refitted: Path, **changes: Any) -> RefitConfig:
    """Settings that name the data where it was when the stores were extracted."""
    return config_of(refitted, **{"registry": str(world / "registry"), **changes})


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


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
        "weights", "data.fit", "data.known", "data.unknown.violet", "settings", "software",
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
        "import sys; from ghost_ray.config import build; from ghost_ray.refit_config import RefitConfig\n"
        f"from ghost_ray.refit import run; print(run(build(RefitConfig, {{}}, {path!r}))['outcome'])\n"
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
    drift = read_json(str(world / "registry" / "versions" / result["version"] / "drift.json"))
    assert drift["previous"] == first.version
    assert drift["accuracy"][0] == drift["accuracy"][1]
    assert drift["rejected_fraction"][1] < drift["rejected_fraction"][0]
    assert drift["mean_shift"]["largest"] == 0.0
    assert drift["classes_gained"] == drift["classes_lost"] == []
    assert (world / "registry" / "versions" / result["version"] / "audit" / "summary.json").is_file()
    status = commands.status(StatusConfig(root=str(world / "registry")))
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
    listed = commands.list_versions(RegistryConfig(root=root))["versions"]
    assert listed[0]["refused_by"] == ["max_rejected_fraction"]
    assert [a["outcome"] for a in registry.last_attempts(root, 2, running=False)] == ["refused", "refused"]
    result = run(same_world(world, refitted, audit={"alpha": 0.2}))
    assert (result["outcome"], result["version"]) == ("promoted", refused)
    assert (world / "registry" / "versions" / refused / "manifest.json").stat().st_mtime_ns == made


def test_what_was_rolled_back_is_not_promoted_again(world: Path, refitted: Path) -> None:
    root = str(world / "registry")
    first = registry.current(root)
    assert first is not None
    changed = same_world(world, refitted, evaluate={"methods": ["ghost"], "draws": 2, "draw_size": 10})
    second = run(changed)["version"]
    commands.rollback(RegistryConfig(root=root))
    result = run(changed)
    assert (result["outcome"], result["version"]) == ("held", first.version)
    assert f"promotes {second}" in result["reason"]
    assert registry.version_ids(root) == [first.version, second]


def test_leftovers_of_a_killed_refit_are_taken_up_and_others_removed(world: Path, refitted: Path) -> None:
    root = world / "registry"
    stray = root / "versions" / f".0002-{'a' * 12}.partial" / "model"
    stray.mkdir(parents=True)
    unused = root / "work" / "stores" / f"fit-{'b' * 12}"
    unused.mkdir()
    config = same_world(world, refitted, audit={"alpha": 0.02})
    version = registry.new_id(str(root), read_inputs(config).fingerprint)
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


def test_two_at_once_one_works_and_the_other_leaves(
    world: Path, refitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ghost_ray.refit.job._LOCK_SECONDS", 0.1)
    config = same_world(world, refitted, audit={"alpha": 0.03})
    root = str(world / "registry")
    before = registry.current(root)
    with registry.hold(root, "refit", job="the-first"), pytest.raises(registry.Busy, match="job the-first"):
        run(config)
    assert registry.current(root) == before
    assert registry.last_attempts(root, 1, running=False)[0]["outcome"] == "busy"
    assert registry.Busy("").exit_code == 1


def test_no_secret_of_a_uri_reaches_manifest_or_log(
    world: Path, refitted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(world / "registry")
    with pytest.raises(InputError):
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
    keys = {key for piece in store.pieces() for key in store.read_small(piece, "key")["key"].to_pylist()}
    assert keys == {path.relative_to(refitted / "train").as_posix() for path in refitted.glob("train/*/*.png")}
    merged, at_once = ghost_ray.load(str(root)).model.gaussians, fit_store(store).finish()
    np.testing.assert_array_equal(merged.count, at_once.count)
    np.testing.assert_array_max_ulp(merged.mean, at_once.mean, 1)
    np.testing.assert_array_max_ulp(merged.std, at_once.std, 1)
    assert {path.name.split(".")[0] for path in (root / "work" / "stores").iterdir()} == {
        name.split(".")[0] for name in manifest.stores.values()
    }


@pytest.mark.parametrize("change", ["smaller", "renamed", "another size", "another place"])
def test_data_that_did_not_only_grow_is_no_base(tmp_path: Path, change: str) -> None:
    write_pictures(tmp_path / "train", 3, seed=1)
    config = ExtractConfig(data=str(tmp_path / "train"), model="networks:small", out=str(tmp_path / "store"))
    plan = make_plan(config)
    growth._write_listing(config.out, plan.items.select(growth._FACTS))
    made = StoreManifest(
        **provenance(config),
        network=plan.network,
        data=[plan.data],
        rows=0,
        class_names=plan.class_names,
        files=[],
        layout="clustered",
    )
    finish_store(config.out, made)

    def is_base() -> bool:
        now = make_plan(config)
        return growth._fitting(config.out, config, now, now.items.select(growth._FACTS)) is not None

    assert not is_base()  # nothing is new
    write_pictures(tmp_path / "train", 1, seed=2, first=8)
    assert is_base()
    one = tmp_path / "train" / "ant" / "0000.png"
    if change == "smaller":
        one.unlink()
    elif change == "renamed":
        one.rename(one.with_name("0007.png"))
    elif change == "another size":
        one.write_bytes((tmp_path / "train" / "bee" / "0001.png").read_bytes() + b"\0")
    else:
        (tmp_path / "train").rename(tmp_path / "moved")
        config = config.model_copy(update={"data": str(tmp_path / "moved")})
    assert not is_base()


def test_a_head_narrowed_by_the_fit_is_narrowed_everywhere(world: Path, tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name in NAMES[1:]:
            (tmp_path / "three" / part).mkdir(parents=True, exist_ok=True)
            (tmp_path / "three" / part / name).symlink_to(world / part / name)
    table = tmp_path / "classes.txt"
    table.write_text("".join(f"{name} {index}\n" for index, name in enumerate(NAMES[1:], start=1)))
    narrowed = {
        "registry": str(tmp_path / "narrowed"),
        "fit": {"data": str(tmp_path / "three" / "train"), "classes": str(table), "restrict": True},
        "known": {"data": str(tmp_path / "three" / "test"), "classes": str(table)},
    }
    assert run(config_of(world, **narrowed))["outcome"] == "promoted"
    version = ghost_ray.load(str(tmp_path / "narrowed"))
    assert version.model.manifest.network.restricted_to == [1, 2, 3]
    assert run(config_of(world, **narrowed))["outcome"] == "up to date"
