"""The tables of faults in the documentation have a row for every fault test, and no other."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fault_table import Key, read_table


def faults_in(value: Any) -> Iterator[Key]:
    """The faults that the marks of a test name, also those on its parameters."""
    for mark in getattr(value, "pytestmark", getattr(value, "marks", [])):
        if mark.name == "fault":
            yield mark.args
        elif mark.name == "parametrize":
            for parameters in mark.args[1]:
                yield from faults_in(parameters)


def test_the_tables_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    tested: list[Key] = []
    for path in sorted(Path(__file__).parents[1].rglob("test_*.py")):
        if "mark.fault(" not in path.read_text():
            continue
        monkeypatch.syspath_prepend(str(path.parent))
        module = importlib.import_module(path.stem)
        classes = [value for value in vars(module).values() if isinstance(value, type)]
        for owner in (module, *classes):
            tested += [key for value in vars(owner).values() if callable(value) for key in faults_in(value)]
    assert len(tested) == len(set(tested)) >= 45
    assert read_table().keys() == set(tested)
