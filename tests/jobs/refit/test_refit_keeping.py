"""Results of the current version that still hold are taken over, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.object_stores import object_store_in_environment
from support.refits import config_of
from support.registries import make_version

from ghost_ray import registry
from ghost_ray.config.refit_settings import RefitConfig
from ghost_ray.files import join, kind_of, read_bytes, write_bytes
from ghost_ray.jobs.fingerprints import installed_libraries
from ghost_ray.jobs.refit.inputs import Inputs
from ghost_ray.jobs.refit.log import Log
from ghost_ray.jobs.refit.planning import choose_stores, stage_keys
from ghost_ray.jobs.refit.stages import Stages
from ghost_ray.model import Model

ROLES = ("fit", "known", "unknown.violet")
INPUTS = Inputs("weights", dict.fromkeys(ROLES, "data"), {}, "settings", installed_libraries(), "minor")


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path / "registry")
        return
    with object_store_in_environment(monkeypatch) as store:
        yield f"s3://{store.bucket}/registry"


def keys_of(config: RefitConfig) -> dict[str, str]:
    return stage_keys(config, choose_stores(config, INPUTS))


def test_each_result_rests_on_its_own_stores_and_settings(tmp_path: Path) -> None:
    before = keys_of(config_of(tmp_path))

    def changed(**changes: object) -> list[str]:
        return [stage for stage, key in keys_of(config_of(tmp_path, **changes)).items() if before.get(stage) != key]

    assert changed() == []
    assert changed(gates={}, keep=3) == []
    assert changed(audit={"alpha": 0.01}) == ["audit"]
    assert changed(evaluate={"methods": ["ghost"]}) == ["evaluation"]
    assert changed(accept_known=0.5) == ["model"]


def test_a_sound_result_is_copied_and_a_damaged_version_gives_none(tmp_path: Path, root: str) -> None:
    config = config_of(tmp_path, registry=root)
    version = make_version(root, "a")
    made = registry.read_version(root, version).model_copy(update={"stages": {"model": keys_of(config)["model"]}})
    place = join(root, "staging")
    stages = Stages(config, INPUTS, place, Log(), made)
    assert not stages._is_there("audit"), "which had other settings"
    assert stages._is_there("model")
    old = Model.open(join(registry.version_folder(root, version), "model"))
    assert Model.open(join(place, "model")).manifest == old.manifest
    assert stages.model().thresholds() == old.thresholds()
    page = join(registry.version_folder(root, version), "report.html")
    write_bytes(page, read_bytes(page)[::-1])
    elsewhere = join(root, "elsewhere")
    assert not Stages(config, INPUTS, elsewhere, Log(), made)._is_there("model")
    assert kind_of(elsewhere) == "nothing"
