"""What a refit makes of its inputs: which change counts as one, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.refits import config_of, settings, write_checkpoint, write_pictures, write_world

from ghost_ray import registry
from ghost_ray.config import build
from ghost_ray.config.refit_settings import RefitConfig
from ghost_ray.errors import InputError
from ghost_ray.files.manifest import Network, library_versions, now
from ghost_ray.jobs.refit import run
from ghost_ray.jobs.refit.inputs import Inputs, read_inputs
from ghost_ray.registry import VersionManifest


def version_of(inputs: Inputs, **versions: str) -> VersionManifest:
    """A version made from these inputs, by these versions of the libraries."""
    return VersionManifest(
        created=now(),
        network=Network(name="toy", classes=3, dimensions=4),
        rows=1,
        version=f"0001-{inputs.fingerprint[:12]}",
        fingerprint=inputs.fingerprint,
        inputs=inputs.parts,
        versions={**library_versions(), **versions},
    )


def test_only_what_changed_changes_the_fingerprint(tmp_path: Path) -> None:
    write_world(tmp_path)
    base = read_inputs(config_of(tmp_path))
    assert read_inputs(config_of(tmp_path)) == base
    version = version_of(base)

    def changed(**changes: Any) -> list[str]:
        return read_inputs(config_of(tmp_path, **changes)).changed_since(version)

    network = settings(tmp_path)["network"]
    assert changed(keep=2, num_cpus=2, gates={}) == []
    assert changed(network={**network, "batch_size": 8, "actors": "1:2"}) == []
    assert changed(network={**network, "precision": "bf16"}) == ["settings"]
    assert changed(fit={"data": str(tmp_path / "train"), "max_failures": 0.5}) == []
    assert changed(fit={"data": str(tmp_path / "train"), "limit": 30}) == ["data.fit"]
    assert changed(accept_known=0.5) == ["settings"]
    assert changed(unknown={}) == ["settings", "data.unknown.violet"]
    write_checkpoint(tmp_path / "weights.safetensors", tmp_path / "train", seed=1)
    assert changed() == ["weights"]
    write_pictures(tmp_path / "test", 1, seed=9, first=50)
    assert changed() == ["weights", "data.known"]


def test_the_same_tensors_in_another_file_are_the_same_weights(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    write_world(tmp_path)
    base = read_inputs(config_of(tmp_path))
    torch.save(load_file(tmp_path / "weights.safetensors"), tmp_path / "weights.pth")
    network = {**settings(tmp_path)["network"], "weights": str(tmp_path / "weights.pth")}
    assert read_inputs(config_of(tmp_path, network=network)).fingerprint == base.fingerprint


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"network": {"model": "support.networks:small", "weights": "nowhere.safetensors"}}, "network.weights"),
        ({"network": {"model": "resnt18"}}, "network.model"),
        ({"fit": {"data": "nowhere"}}, "fit.data"),
        ({"fit": {"data": "TRAIN", "format": "fodler"}}, "fit.format"),
        ({"evaluate": {"methods": ["ghost", "knn:n=3"]}}, "evaluate.methods"),
        ({"unknown": {"violet": {"data": "nowhere"}}}, "unknown.violet.data"),
        ({"known": {"data": "TRAIN", "classes": "nowhere.json"}}, "known.classes"),
    ],
)
def test_inputs_that_are_not_there_are_named(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    write_world(tmp_path)
    if "known" in changes:
        changes = {"known": {**changes["known"], "data": str(tmp_path / "train")}}
    with pytest.raises(InputError) as caught:
        run(config_of(tmp_path, **changes))
    assert caught.value.field == field
    assert registry.current(str(tmp_path / "registry")) is None
    assert registry.last_attempts(str(tmp_path / "registry"), 1, running=None)[0]["outcome"] == "failed"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gates: {max_auoscr_dro: 1}", "max_auoscr_drop"),
        ("gates: {max_auoscr_drop: 7}", "gates.max_auoscr_drop"),
        ("network: {weights: x}", "network.model"),
        ("unknown: {'a/b': {data: x}}", "unknown"),
        ("evaluate: {methods: [msp]}", "must include ghost"),
        ("known: null", "need labelled test images"),
        ("unknown: {}\ngates: {min_auoscr: 0.5}", "`min_auoscr` needs images under `unknown`"),
        ("keep_weights: true\nnetwork: {model: resnet18}", "`keep_weights` needs a file under `weights`"),
        ("registery: x", "registry"),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    import yaml

    path = tmp_path / "refit.yaml"
    path.write_text(yaml.safe_dump({**settings(tmp_path), **yaml.safe_load(text)}))
    with pytest.raises(InputError) as caught:
        build(RefitConfig, {}, str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_registry_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        run(config_of(tmp_path, registry=str(tmp_path / "file" / "registry")))
