"""The way of a picture: the modules that docs/architecture.md names are those that a picture passes, and few."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.pictures import write_folder

from ghost_ray.config import ExtractConfig
from ghost_ray.jobs.extract import commit, job
from ghost_ray.jobs.extract import run as extract
from ghost_ray.jobs.extract.embed import Embed

ROOT = Path(__file__).parents[2]
# What serves every step: paths and errors, tasks, and the index of row groups.
SERVING = {"errors.py", "progress.py", "cluster/tasks.py", "jobs/extract/job.py", "store/row_groups.py"}
ROOMS = ("jobs/extract", "cluster", "sources", "store", "files", "backbone", "config")


class Followed:
    """Notes the modules of every function that is called, in all threads that start while it is on."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._on = False  # a thread that began to note goes on

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        name = str(frame.f_globals.get("__name__", ""))
        if self._on and event == "call" and name.startswith("ghost_ray.") and frame.f_code.co_name != "<module>":
            self.modules.add(name.removeprefix("ghost_ray.").replace(".", "/") + ".py")

    def during(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def followed(*arguments: Any, **options: Any) -> Any:
            self._set(True)
            try:
                return function(*arguments, **options)
            finally:
                self._set(False)

        return followed

    def through(self, generator: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def followed(*arguments: Any) -> Iterator[Any]:
            items = generator(*arguments)
            while (item := self.during(next)(items, None)) is not None:
                yield item

        return followed

    def _set(self, on: bool) -> None:
        self._on = on
        sys.setprofile(self if on else None)
        threading.setprofile(self if on else None)


def test_a_picture_passes_the_modules_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "data", 1)
    followed = Followed()
    monkeypatch.setattr(job, "_decoded", followed.through(job._decoded))
    monkeypatch.setattr(Embed, "__call__", followed.during(Embed.__call__))
    monkeypatch.setattr(job, "check_blocks", followed.during(job.check_blocks))
    monkeypatch.setattr(commit, "arrange", followed.during(commit.arrange))
    extract(ExtractConfig(data=str(tmp_path / "data"), out=str(tmp_path / "store"), model="support.networks:small"))
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.partition("<!-- the way of a picture -->")[2].partition("<!-- end of the way -->")[0]
    named = re.findall(r"\| `([^`]+\.py)` \|$", table, re.MULTILINE)
    assert len(named) == len(set(named)) <= 14
    passed = {module for module in followed.modules if not module.startswith("files/")} - SERVING
    assert passed == set(named)


def test_ten_pictures_run_few_modules(tmp_path: Path) -> None:
    write_folder(tmp_path / "data", 3)
    followed = Followed()
    words = ExtractConfig(data=str(tmp_path / "data"), out=str(tmp_path / "store"), model="support.networks:small")
    followed.during(extract)(words)
    assert len(followed.modules) <= 55


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_a_dozen_modules_of_at_most_500_lines(room: str) -> None:
    files = list((ROOT / "ghost_ray" / room).glob("*.py"))
    assert len(files) <= 12
    assert [file.name for file in files if len(file.read_text().splitlines()) > 500] == []
