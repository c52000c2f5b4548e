"""Damage is noticed and never served: every file of a version, changed in every way that files change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fault_table import Fault
from support.registries import make_promoted, make_version

import ghost_ray
from ghost_ray import registry
from ghost_ray.cli import main
from ghost_ray.config.refit_settings import (
    LabelConfig,
    PromoteConfig,
    RegistryConfig,
    RollbackConfig,
    ShowConfig,
    StatusConfig,
    VerifyConfig,
)
from ghost_ray.errors import Damaged, DamageFound, InputError
from ghost_ray.registry import looking, operations
from ghost_ray.registry.status import status
from ghost_ray.registry.verifying import verify

READ_BY_LOAD = ("manifest.json", "model/manifest.json", "model/gaussians.safetensors", "model/thresholds.json")


def flip(file: Path, _: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def flip_the_end(file: Path, _: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 0x10
    file.write_bytes(content)


def cut(file: Path, _: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def empty(file: Path, _: Path) -> None:
    file.write_bytes(b"")


def swap(file: Path, other: Path) -> None:
    shutil.copyfile(other, file)


def delete(file: Path, _: Path) -> None:
    file.unlink()


DAMAGES: list[Callable[[Path, Path], None]] = [flip, flip_the_end, cut, empty, swap, delete]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A registry whose third version is current, and the second and the first the way back."""
    return make_promoted(str(tmp_path / "registry"), "abc")


def promote(root: str, version: str) -> None:
    operations.promote(PromoteConfig(root=root, version=version))


def folder_of(root: str, number: int) -> Path:
    (found,) = Path(root, "versions").glob(f"{number:04d}-*")
    return found


def test_every_damage_of_every_file_is_noticed(root: str) -> None:
    version, other = folder_of(root, 3), folder_of(root, 2)
    sound = {path.relative_to(version).as_posix(): path.read_bytes() for path in version.rglob("*") if path.is_file()}
    assert {"report.html", "audit/summary.json", *READ_BY_LOAD} <= sound.keys()
    serving = ghost_ray.load(root)
    for name, content in sound.items():
        for damage in DAMAGES:
            where = f"{damage.__name__} of {name}"
            damage(version / name, other / name)
            if (version / name).exists() and (version / name).read_bytes() == content:
                assert damage is swap, where  # that file is the same in both
                continue
            shown = f"versions/{version.name}/{name}"
            if (name, damage) == ("manifest.json", delete):
                shown = f"versions/{version.name}"  # what has no manifest is no version any more
            with pytest.raises(DamageFound) as found:
                verify(VerifyConfig(place=root))
            assert found.value.result is not None, where
            assert [one["file"] for one in found.value.result["damaged"]] == [shown], where
            if name in READ_BY_LOAD:
                with pytest.raises(InputError):
                    ghost_ray.load(root)
            seen = status(StatusConfig(root=root))
            assert seen["current"] is not None
            assert seen["current"]["damage"], where
            assert any("is damaged" in problem for problem in seen["problems"]), where
            with pytest.raises(InputError):
                promote(root, version.name)
            assert serving.refresh() is serving
            (version / name).write_bytes(content)
    assert verify(VerifyConfig(place=root))["damaged"] == []
    assert status(StatusConfig(root=root))["problems"] == []


def test_a_model_of_another_version_is_not_served_even_whole(root: str) -> None:
    shutil.rmtree(folder_of(root, 3) / "model")
    shutil.copytree(folder_of(root, 2) / "model", folder_of(root, 3) / "model")
    with pytest.raises(Damaged, match=r"model/manifest\.json is not as it was written"):
        ghost_ray.load(root)


def test_rollback_passes_over_what_is_damaged_and_says_so(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    flip(folder_of(root, 2) / "model" / "gaussians.safetensors", Path())
    with pytest.raises(SystemExit):
        main(["registry", "rollback", root])
    out = capsys.readouterr().out
    assert f"Skipped {folder_of(root, 2).name}, which is damaged: model/gaussians.safetensors" in out
    assert ghost_ray.load(root).version == folder_of(root, 1).name
    flip(folder_of(root, 3) / "model" / "gaussians.safetensors", Path())
    promote(root, make_version(root, "d"))
    flip(folder_of(root, 1) / "manifest.json", Path())
    with pytest.raises(InputError, match=r"no version before 0004-.* is intact"):
        operations.rollback(RollbackConfig(root=root))


@pytest.mark.parametrize("file", ["manifest.json", "model/gaussians.safetensors"])
def test_a_damaged_current_version_can_be_left_and_is_not_held(
    root: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cut(folder_of(root, 3) / file, Path())
    with pytest.raises(SystemExit):
        main(["registry", "rollback", root])
    assert f"{folder_of(root, 3).name} is damaged and not held: a refit makes it again" in capsys.readouterr().out
    pointer = registry.current(root)
    assert pointer is not None
    assert pointer.version == folder_of(root, 2).name
    assert pointer.held == []
    assert status(StatusConfig(root=root))["problems"] == []


@pytest.mark.parametrize("lost", [False, True])
def test_promoting_a_held_version_that_was_damaged_since_ends_its_hold(
    root: str, lost: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    version = folder_of(root, 3)
    operations.rollback(RollbackConfig(root=root))
    shutil.rmtree(version) if lost else flip(version / "report.html", Path())
    with pytest.raises(SystemExit) as stop:
        main(["registry", "promote", root, version.name])
    assert stop.value.code == 1
    assert "no longer held: run the refit, which makes it again and promotes it" in capsys.readouterr().err
    pointer = registry.current(root)
    assert pointer is not None
    assert (pointer.version, pointer.held) == (folder_of(root, 2).name, [])
    with pytest.raises(InputError):
        promote(root, version.name)


@pytest.mark.fault("registry", "the manifest of a version cannot be read")
def test_one_unreadable_version_hides_no_other(root: str, fault: Fault) -> None:
    cut(folder_of(root, 2) / "manifest.json", Path())
    listed = looking.list_versions(RegistryConfig(root=root))["versions"]
    assert [(one["version"][:4], one["damage"] is None) for one in listed] == [
        ("0003", True),
        ("0002", False),
        ("0001", True),
    ]
    assert looking.show_version(ShowConfig(root=root))["damage"] is None
    promote(root, "1")
    assert list(status(StatusConfig(root=root))["damaged"]) == [folder_of(root, 2).name]
    fault.ended("the others are listed, shown and promoted; `status` names it")


def test_no_label_is_given_to_a_damaged_version(root: str) -> None:
    flip(folder_of(root, 1) / "report.html", Path())
    with pytest.raises(Damaged, match=r"report\.html"):
        operations.label(LabelConfig(root=root, version="1", label="canary"))


@pytest.mark.parametrize("damage", [flip, cut, empty, delete])
def test_a_damaged_pointer_is_replaced_by_its_copy(root: str, damage: Callable[[Path, Path], None]) -> None:
    before = registry.current(root)
    damage(Path(root, "current.json"), Path())
    assert registry.current(root) == before
    assert ghost_ray.load(root).version == folder_of(root, 3).name
    assert "current.backup.json is used" in status(StatusConfig(root=root))["problems"][0]
    with pytest.raises(DamageFound):
        verify(VerifyConfig(place=root))
    promote(root, "1")
    assert status(StatusConfig(root=root))["problems"] == []
    damage(Path(root, "current.json"), Path())
    registry.mend(root)
    assert Path(root, "current.json").read_bytes() == Path(root, "current.backup.json").read_bytes()
    assert ghost_ray.load(root).version == folder_of(root, 1).name


@pytest.mark.fault("registry", "`current.json` and its copy are both damaged")
def test_a_pointer_without_a_sound_copy_is_refused(root: str, fault: Fault) -> None:
    serving = ghost_ray.load(root)
    cut(Path(root, "current.json"), Path())
    cut(Path(root, "current.backup.json"), Path())
    with pytest.raises(Damaged, match=r"current\.json .* restore current\.json .* or remove it"):
        ghost_ray.load(root)
    assert serving.refresh() is serving
    Path(root, "current.json").unlink()
    Path(root, "current.backup.json").unlink()
    assert len(looking.list_versions(RegistryConfig(root=root))["versions"]) == 3
    promote(root, "2")
    assert ghost_ray.load(root).version == folder_of(root, 2).name
    assert status(StatusConfig(root=root))["problems"] == []
    fault.ended(
        "readers refuse it in one line, a running service keeps what it has; without the two files, `registry list` "
        "names the versions and `promote` makes a new one"
    )


def test_verify_takes_any_result_or_folder_of_results(root: str, tmp_path: Path) -> None:
    assert verify(VerifyConfig(place=str(folder_of(root, 1) / "model")))["results"] == 1
    assert verify(VerifyConfig(place=str(Path(root, "versions"))))["results"] == 3
    with pytest.raises(InputError, match="no result"):
        verify(VerifyConfig(place=str(tmp_path)))
    with pytest.raises(InputError, match="is not a folder"):
        verify(VerifyConfig(place=str(tmp_path / "nowhere")))


def test_verify_ends_with_2_and_names_each_file(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    flip(folder_of(root, 1) / "report.html", Path())
    delete(folder_of(root, 2) / "drift.json", Path())
    with pytest.raises(SystemExit) as stop:
        main(["verify", root, "--json"])
    assert stop.value.code == 2
    printed = capsys.readouterr()
    files = [one["file"] for one in json.loads(printed.out)["damaged"]]
    assert [Path(file).name for file in files] == ["report.html", "drift.json"]
    assert printed.err.count("\n") <= 2
