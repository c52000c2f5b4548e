"""A third-party package that adds a method, an image format and a network by entry point."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "their-package"
version = "1.0"

[project.entry-points."ghost_ray.methods"]
norm = "their_package:Norm"
broken = "their_package:missing"
msp = "their_package:Impostor"

[project.entry-points."ghost_ray.formats"]
toy = "support.toy_format:TOY"
torn = "their_package:Norm"

[project.entry-points."ghost_ray.networks"]
their-net = "their_package:network"

[tool.setuptools]
py-modules = ["their_package"]
"""

MODULE = '''
import numpy as np
from ghost_ray.scorers import Scorer


class Norm(Scorer):
    """The length of the embedding to a power: unknowns tend to be short.

    Parameters
    ----------
    power : float, default 1
    """

    name = "norm"
    title = "Feature norm"

    def __init__(self, power: float = 1.0) -> None:
        self.power = power

    def score_finite(self, batch):
        return np.linalg.norm(batch.embedding.astype(np.float64), axis=1) ** self.power


class Impostor(Norm):
    name = "msp"


def network():
    from support.networks import small

    return small()
'''


def install(folder: Path) -> Path:
    """Install the package with pip; returns the folder to put on the path."""
    source, target = folder / "source", folder / "site"
    source.mkdir()
    (source / "pyproject.toml").write_text(PYPROJECT)
    (source / "their_package.py").write_text(MODULE)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(source)], check=True, capture_output=True, timeout=300)
    return target


def lay_down(folder: Path) -> Path:
    """The package as an installer leaves it, without an installer."""
    info = folder / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    tables = PYPROJECT.partition("[project.entry-points")[2].rpartition("[tool.setuptools]")[0]
    lines = f"[project.entry-points{tables}".replace('[project.entry-points."', "[").replace('"]', "]").replace('"', "")
    (info / "entry_points.txt").write_text(lines)
    (folder / "their_package.py").write_text(MODULE)
    return folder
