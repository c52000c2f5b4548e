"""The order of the rooms: the contract holds, it can fail, and the documentation shows the same layers."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def contract_layers() -> list[list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert not any("ignore_imports" in contract for contract in contracts)
    return [[part.strip() for part in layer.split("|")] for layer in contracts[0]["layers"]]


def documented_layers() -> list[list[str]]:
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.partition("<!-- layers -->")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [re.findall(r"`([^`]+)`", row) for row in rows]


def test_the_page_shows_the_layers_of_the_contract() -> None:
    assert documented_layers() == contract_layers()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its contract, to be changed."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "ghost_ray", folder / "ghost_ray", ignore=shutil.ignore_patterns("__pycache__", "assets"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_the_contract_holds(copy: Path) -> None:
    ended = lint(copy)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("gaussians/distance.py", "from ghost_ray.files import join"),
        ("store/writer.py", "def late():\n    from ghost_ray.cluster import map_ordered"),  # lazy ones count too
        ("jobs/fit.py", "from ghost_ray.jobs import audit"),
    ],
)
def test_a_forbidden_import_breaks_it(copy: Path, module: str, line: str) -> None:
    file = copy / "ghost_ray" / module
    before = file.read_text()
    file.write_text(f"{before}\n{line}\n")
    try:
        ended = lint(copy)
    finally:
        file.write_text(before)
    assert ended.returncode == 1
    assert "BROKEN" in ended.stdout
    assert "ghost_ray." + module.removesuffix(".py").replace("/", ".") in ended.stdout


def test_few_modules_at_the_top() -> None:
    assert len(list((ROOT / "ghost_ray").glob("*.py"))) <= 10
