"""Which tests run in parallel under ``pytest -n 2``, and in what order."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import PurePath
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# The files that take longest begin first, so that all processes end at about the same time.
_LONGEST = ("test_demo", "test_refit_faults", "test_extract_faults", "test_jobs", "test_docs", "test_extract")
# Files whose tests are few and long and share little; any process may take any of them.
_APART = ("test_fuzz", "test_refit_faults")


def uses_ray(item: pytest.Item) -> bool:
    """Whether the test asks for the Ray that tests share."""
    return "local_ray" in getattr(item, "fixturenames", ())


def order(item: pytest.Item) -> tuple[int, bool]:
    """A key to sort by: those that share the Ray come one after another."""
    stem = item.path.stem
    return _LONGEST.index(stem) if stem in _LONGEST else len(_LONGEST), not uses_ray(item)


@contextlib.contextmanager
def beside_others(*, alone: bool) -> Iterator[None]:
    """A test's time, shared with one test of each other process, or with none."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    with contextlib.ExitStack() as files:
        door, room = (
            files.enter_context(open(os.path.join(tempfile.gettempdir(), f"ghost_ray-{run}-{name}.lock"), "w"))
            for name in ("door", "room")
        )
        # A test that waits to run alone keeps this lock, so that no other starts before it.
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield


class ByFile(LoadScopeScheduling):
    """Consecutive tests of a file stay in one process, for what they share."""

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        self._units = {
            test: f"{file}, part {part}"
            for part, (file, tests) in enumerate(groupby(collection, key=_together))
            for test in tests
        }

    def _split_scope(self, nodeid: str) -> str:
        return self._units[nodeid]


def _together(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return nodeid if PurePath(file).stem in _APART else file
