"""A world in which one refit has been made: once for all tests of a file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.refits import config_of, write_world

from ghost_ray.jobs.refit import run


@pytest.fixture(scope="module")
def refitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
