"""The files that contributors, citers and release makers rely on say the same as the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

import ghost_ray

ROOT = Path(__file__).parents[2]


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_every_file_names_the_same_version() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    images = {
        tag
        for path in (ROOT / "deploy").iterdir()
        for tag in re.findall(r"my-registry/ghost-ray:(\S+)", path.read_text())
    }
    assert {ghost_ray.__version__, load("CITATION.cff")["version"], *images} == {declared}
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == declared


def test_the_citation_names_the_software_and_the_paper() -> None:
    citation = load("CITATION.cff")
    assert {"cff-version", "message", "title", "authors", "license"} <= set(citation)
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Rabinowitz", "Cruz", "Günther", "Boult"]
    assert paper["url"].endswith(paper["identifiers"][0]["value"].removeprefix("arXiv:"))


def test_commits_are_checked_by_what_the_test_command_runs_and_by_nothing_from_elsewhere() -> None:
    (repository,) = load(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    command = (ROOT / "README.md").read_text().split("<!-- test command -->")[1].split("```")[1]
    for hook in repository["hooks"]:
        assert hook["entry"] in command
        assert hook["language"] == "system"


def test_the_files_that_contributors_are_sent_to_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:ghost_ray|tests|docs|deploy|report|\.ci)/[\w./*]*)`", text)
    assert len(named) > 15
    for path in named:
        assert [*ROOT.glob(path), *(ROOT / "ghost_ray").glob(path)], path
