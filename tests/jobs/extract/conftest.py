"""Pictures to extract: as many per class as the test file's ``PER_CLASS`` says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pictures import write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    root = tmp_path_factory.mktemp("data") / "images"
    write_folder(root, request.module.PER_CLASS)
    return root


@pytest.fixture(scope="module")
def keys(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*.jpg"))
