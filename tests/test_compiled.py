"""Where machine code is kept, seen from processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parents[1] / "ghost_ray"
TOY = """
from ghost_ray.compiled import compiled

@compiled()
def twice(x):
    return 2 * x

@compiled()
def four_times(x):
    return twice(twice(x))
"""
RUN = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from ghost_ray.toy import four_times
assert "numba" not in sys.modules
with ThreadPoolExecutor(4) as pool:
    assert list(pool.map(four_times, range(4))) == [0, 4, 8, 12]
import numba
stats = four_times.machine_code().stats
print(json.dumps({
    "folder": stats.cache_path,
    "hits": sum(stats.cache_hits.values()),
    "setting": numba.config.CACHE_DIR,
}))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder that holds what a compiled function needs of the package, and one such function."""
    folder = tmp_path / "installed"
    (folder / "ghost_ray").mkdir(parents=True)
    for name in ("__init__.py", "compiled.py"):
        shutil.copy(PACKAGE / name, folder / "ghost_ray")
    (folder / "ghost_ray/toy.py").write_text(TOY)
    return folder


def run(installed: Path, **environment: str) -> dict[str, Any]:
    """What a process that calls a compiled function finds; no file may have appeared beside the sources."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    before = set(installed.rglob("*"))
    answer = subprocess.run(
        [sys.executable, "-B", "-c", RUN],
        env={**inherited, "PYTHONPATH": str(installed), **environment},
        cwd=installed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert set(installed.rglob("*")) == before
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def test_machine_code_is_kept_in_the_users_cache_and_found_again(installed: Path, tmp_path: Path) -> None:
    first = run(installed, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert Path(first["folder"]).is_relative_to(tmp_path / "cache/ghost_ray/compiled")
    assert first["hits"] == 0
    assert first["setting"] == "", "other libraries keep numba's own folders"
    assert run(installed, XDG_CACHE_HOME=str(tmp_path / "cache")) == {**first, "hits": 1}


def test_the_cache_of_a_home_is_used_where_none_is_named(installed: Path, tmp_path: Path) -> None:
    for environment in ({}, {"XDG_CACHE_HOME": "relative"}):
        found = run(installed, HOME=str(tmp_path), **environment)
        assert Path(found["folder"]).is_relative_to(tmp_path / ".cache/ghost_ray/compiled")


def test_another_source_has_another_folder(installed: Path, tmp_path: Path) -> None:
    folders = [Path(run(installed, XDG_CACHE_HOME=str(tmp_path))["folder"]).parent]
    for changed in ("toy.py", "compiled.py"):
        with (installed / "ghost_ray" / changed).open("a") as file:
            file.write("\n# changed\n")
        found = run(installed, XDG_CACHE_HOME=str(tmp_path))
        assert found["hits"] == 0
        folders.append(Path(found["folder"]).parent)
    assert len(set(folders)) == 3


def test_each_process_compiles_where_nothing_can_be_written(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert run(installed, XDG_CACHE_HOME=str(tmp_path / "file"))["folder"] is None
    assert run(installed, HOME="not-a-folder")["folder"] is None


def test_the_users_own_setting_of_numba_is_followed(installed: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    found = run(installed, NUMBA_CACHE_DIR=str(chosen), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert Path(found["folder"]).is_relative_to(chosen)
    assert found["setting"] == str(chosen)
    (tmp_path / "file").touch()
    found = run(installed, NUMBA_CACHE_DIR=str(tmp_path / "file"), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert Path(found["folder"]).is_relative_to(tmp_path / "cache")
