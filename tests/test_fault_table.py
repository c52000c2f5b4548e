"""The table of faults in the documentation has a row for every fault test, and no other."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fault_table import Key, read_table


def faults_in(value: Any) -> Iterator[Key]:
    """The faults that the marks of a test name, also those on its parameters."""
    for mark in getattr(value, "pytestmark", getattr(value, "marks", [])):
        if mark.name == "fault":
            yield mark.args
        elif mark.name == "parametrize":
            for parameters in mark.args[1]:
                yield from faults_in(parameters)


def test_the_table_is_whole() -> None:
    tested: list[Key] = []
    for path in sorted(Path(__file__).parent.glob("test_*_faults.py")):
        module = importlib.import_module(path.stem)
        classes = [value for value in vars(module).values() if isinstance(value, type)]
        for owner in (module, *classes):
            tested += [key for value in vars(owner).values() if callable(value) for key in faults_in(value)]
    assert len(tested) == len(set(tested)) >= 22
    assert read_table().keys() == set(tested)
