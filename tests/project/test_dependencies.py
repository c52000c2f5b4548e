"""What pyproject.toml declares is what is imported, and constraints.txt holds the versions that were tested."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
# Run or read by a tool and imported by nobody.
TOOLS = {"import-linter", "ipykernel", "mypy", "pytest-timeout", "ruff", "types-pyyaml"}
DISTRIBUTIONS = {
    module: canonicalize_name(names[0]) for module, names in importlib.metadata.packages_distributions().items()
}


def required(*requirements: str) -> set[str]:
    return {canonicalize_name(Requirement(requirement).name) for requirement in requirements}


def imported(*folders: str) -> set[str]:
    """The distributions that the Python files below the folders import anywhere in them."""
    modules = set()
    own = {path.stem for folder in folders for path in (ROOT / folder).rglob("*.py")} | {"ghost_ray", "support"}
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules.add(node.module.split(".")[0])
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("importorskip"):
                modules.add(ast.literal_eval(node.args[0]).split(".")[0])
    modules -= sys.stdlib_module_names
    missing = modules - set(DISTRIBUTIONS) - own
    assert not missing, f"imported and not installed: {missing}"
    return {DISTRIBUTIONS[module] for module in modules if module in DISTRIBUTIONS} - {"ghost-ray"}


def test_the_package_declares_what_it_imports_and_nothing_else() -> None:
    optional = required(*EXTRAS["pytorch-ood"])
    assert imported("ghost_ray", "jobs") == required(*PROJECT["dependencies"]) | optional


def test_the_dev_extra_is_what_tests_benchmarks_and_docs_need_beyond_that() -> None:
    package = required(*PROJECT["dependencies"])
    assert imported("tests", "benchmarks", "docs") - package == required(*EXTRAS["dev"]) - TOOLS
    assert required(*EXTRAS["dev"]) >= TOOLS


def test_ray_is_bounded_from_above() -> None:
    """Beta and private interfaces of it are used; a later version is tried before it is allowed."""
    (ray,) = (r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "ray")
    assert ray.specifier.contains("2.60.0")
    assert not ray.specifier.contains("2.61.0")


def pins() -> dict[str, str]:
    lines = [line for line in CONSTRAINTS.splitlines() if not line.startswith("#")]
    for line in lines:  # so neither an address nor a path
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9._]*", line), line
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def everything_required() -> set[str]:
    """What an installation with all extras consists of, by the metadata of what is installed."""
    found = set()
    waiting = [Requirement(r) for r in [*PROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)]]
    seen = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        found.add(name)
        for extra in {"", *requirement.extras} - {extra for other, extra in seen if other == name}:
            seen.add((name, extra))
            for line in importlib.metadata.requires(name) or []:
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)
    return found


def test_every_dependency_is_pinned_and_fits_its_bounds() -> None:
    pinned = pins()
    for requirement in map(Requirement, [*PROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)]):
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} and {version}"
    assert everything_required() <= set(pinned)


def test_the_versions_installed_are_the_pinned_ones() -> None:
    pinned = pins()
    installed = {name: importlib.metadata.version(name) for name in everything_required()}
    others = {name: version for name, version in installed.items() if pinned.get(name) != version}
    if others:
        pytest.skip(f"installed without -c constraints.txt: {others}")


@pytest.mark.parametrize("file", ["README.md", ".ci/run", "deploy/Dockerfile", "cluster.yaml"])
def test_every_installation_uses_the_pinned_versions(file: str) -> None:
    commands = [line for line in (ROOT / file).read_text().splitlines() if re.search(r'pip"? install', line)]
    assert commands
    assert all(re.search(r" -c \S*constraints.txt ", command) for command in commands), commands
