"""The README's two commands, one after the other, in a fresh copy of the repository and an environment of its own.

The environment borrows the heavy packages from the one the tests run in, so that pip has only this package to install.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
LAUNCHER = """#!{python}
import sys
from importlib.metadata import entry_points
if __name__ == "__main__":
    (command,) = entry_points(group="console_scripts", name={name!r})
    sys.exit(command.load()())
"""
QUICK = "tests/metrics tests/config"


class Clone:
    """A copy of the working tree with an environment in ``.venv`` that sees the packages of the running one."""

    def __init__(self, folder: Path) -> None:
        ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split()]
        self.folder = shutil.copytree(ROOT, folder / "clone", ignore=shutil.ignore_patterns(".git", *ignored))
        self.cache = folder / "cache"
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "GHOST_RAY"))},
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "XDG_CACHE_HOME": str(self.cache),
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # means that nothing is isolated: pip reads the option's name backwards
        }
        for name in ("PYTHONPATH", "NUMBA_CACHE_DIR", "VIRTUAL_ENV"):
            self._environment.pop(name, None)
        self.run("python3 -m venv .venv && .venv/bin/pip uninstall --quiet --yes setuptools")
        (self.packages,) = (self.folder / ".venv/lib").glob("python3*/site-packages")
        self.borrowed = {str(Path(importlib.util.find_spec(name).origin).parents[1]) for name in ("torch", "pytest")}
        (self.packages / "borrowed.pth").write_text("\n".join(self.borrowed))
        for name in ("mypy", "lint-imports", "pytest"):
            launcher = self.folder / ".venv/bin" / name
            launcher.write_text(LAUNCHER.format(python=self.folder / ".venv/bin/python", name=name))
            launcher.chmod(0o755)
        (self.folder / ".venv/bin/ruff").symlink_to(shutil.which("ruff", path=self._environment["PATH"]))

    def run(self, command: str, **environment: str) -> str:
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def installed(self) -> set[Path]:
        """Every file of the environment, and of this package in those it borrows from."""
        own = [place for folder in self.borrowed for place in Path(folder).glob("ghost_ray*")]
        return {path for folder in (self.packages, *own) for path in folder.rglob("*")}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_two_commands_run_one_after_the_other_and_write_nothing_into_packages(tmp_path: Path) -> None:
    demo, tests = COMMANDS[:2]
    clone = Clone(tmp_path)

    installing, running = demo.rsplit("&&", 1)
    clone.run(installing)
    before = clone.installed()
    clone.run(running)
    assert (clone.folder / "ghost-demo/report.html").exists()
    assert clone.installed() == before
    assert not [*clone.folder.rglob("*.nbi"), *clone.folder.rglob("*.nbc")], "compiled code beside the sources"
    assert [*clone.cache.rglob("ghost_ray/compiled/**/*.nbi")]

    # The whole suite is collected, and a part of it run: all of it is what the command itself is for.
    collected = clone.run(tests, PYTEST_ADDOPTS="--collect-only -q")
    assert int(re.findall(r"^(\d+)[/ ].*tests? collected", collected, re.M)[-1]) > 300
    clone.run(f".venv/bin/pytest -q {QUICK}")
    found = clone.run(f"cd / && {clone.folder}/.venv/bin/python -c 'import ghost_ray; print(ghost_ray.__file__)'")
    assert Path(found.strip()) == clone.folder / "ghost_ray/__init__.py"
