"""A version says where its network's weights were, and keeps a copy if asked: after a rollback a service finds them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.refits import config_of, files_below, settings, write_checkpoint, write_world

from ghost_ray import OpenSetClassifier, registry
from ghost_ray.cli import main
from ghost_ray.config.refit_settings import PruneConfig, RollbackConfig, ShowConfig, VerifyConfig
from ghost_ray.errors import Damaged, InputError
from ghost_ray.jobs.refit import run
from ghost_ray.registry import looking, operations
from ghost_ray.registry.verifying import verify

NETWORK = "support.networks:small"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of two networks, whose weights were in the same file; copies were kept, the file is gone."""
    folder = tmp_path_factory.mktemp("kept")
    write_world(folder)
    refit(folder, keep_weights=True)
    write_checkpoint(folder / "weights.safetensors", folder / "train", seed=1)
    refit(folder, keep_weights=True)
    (folder / "weights.safetensors").unlink()
    return folder


def refit(folder: Path, **changes: Any) -> None:
    gates = {"max_rejected_fraction": 1.0, "max_accuracy_drop": None, "max_auoscr_drop": None}
    assert run(config_of(folder, gates=gates, unknown={}, **changes))["outcome"] == "promoted"


@pytest.fixture
def root(made: Path, tmp_path: Path) -> str:
    shutil.copytree(made / "registry", tmp_path / "registry")
    return str(tmp_path / "registry")


def test_a_service_finds_the_network_of_the_version_that_was_rolled_back_to(
    root: str, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = OpenSetClassifier.from_model(root, NETWORK, device="cpu")
    operations.rollback(RollbackConfig(root=root))
    first = OpenSetClassifier.from_model(root, NETWORK, device="cpu")
    assert not bool((first.head.weight == second.head.weight).all())
    shown = looking.show_version(ShowConfig(root=root))
    assert (shown["weights"], shown["kept_weights"]) == (str(made / "weights.safetensors"), "weights.safetensors")
    with pytest.raises(SystemExit):
        main(["registry", "show", root])
    assert "a copy is kept: weights.safetensors" in capsys.readouterr().out.replace("\n", "")


def test_the_copy_is_a_file_of_the_version(root: str) -> None:
    first, second = registry.version_ids(root)
    assert "weights.safetensors" in (registry.read_version(root, first).digests or {})
    kept = Path(root, "versions", second, "weights.safetensors")
    content = bytearray(kept.read_bytes())
    content[-1] ^= 1
    kept.write_bytes(content)
    with pytest.raises(Damaged, match=r"weights\.safetensors is not as it was written"):
        OpenSetClassifier.from_model(root, NETWORK, device="cpu")
    assert registry.damages_of(root, second)
    operations.rollback(RollbackConfig(root=root))
    assert operations.prune(PruneConfig(root=root, keep=0))["removed"] == [second]
    assert {name.split("/")[0] for name in files_below(Path(root, "versions"))} == {first}
    assert verify(VerifyConfig(place=root))["damaged"] == []


def test_without_a_copy_the_place_is_said_and_never_opened(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "world")
    folder = tmp_path / "world"
    write_checkpoint(folder / "weights.safetensors", folder / "train", seed=2)
    refit(folder)
    root = str(folder / "registry")
    current = registry.current(root)
    assert current is not None
    assert "weights.safetensors" not in files_below(folder / "registry" / "versions" / current.version)
    with pytest.raises(InputError) as refusal:
        OpenSetClassifier.from_model(root, NETWORK, device="cpu")
    assert f"weights were at {folder / 'weights.safetensors'} when {current.version}" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    given = str(folder / "weights.safetensors")
    assert OpenSetClassifier.from_model(root, NETWORK, weights=given, device="cpu").head.out_features == 4


def test_a_relative_place_is_recorded_whole_and_a_remote_one_without_its_secrets(tmp_path: Path) -> None:
    from ghost_ray.jobs.refit.version_making import place_of_weights

    def place(weights: str | None) -> str | None:
        return place_of_weights(config_of(tmp_path, network={**settings(tmp_path)["network"], "weights": weights}))

    assert place(None) is None
    assert place("w.pth") == str(Path.cwd() / "w.pth")
    assert place("s3://key:topsecret@bucket/w.pth") == "s3://bucket/w.pth"


def test_weights_that_change_while_they_are_copied_publish_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ghost_ray.errors import JobFailed
    from ghost_ray.jobs.refit import version_making

    write_world(tmp_path)
    copied = version_making.local_copy

    def late(place: str, field: str) -> str:
        write_checkpoint(tmp_path / "weights.safetensors", tmp_path / "train", seed=3)
        return copied(place, field)

    with monkeypatch.context() as patch:
        patch.setattr(version_making, "local_copy", late)
        with pytest.raises(JobFailed, match="changed while the refit ran"):
            run(config_of(tmp_path, keep_weights=True, unknown={}))
    assert registry.version_ids(str(tmp_path / "registry")) == []
