"""What an audit has tested so far, kept in the output's staging folder until it is published."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ghost_ray.files import join, kind_of, names_in, read_json, remove_tree, write_json
from ghost_ray.files.tensors import read_tensors, write_tensors
from ghost_ray.jobs.audit.class_tests import RangeTests
from ghost_ray.progress import say

_PLAN = "plan.json"
_ARRAYS = ("classes", "n", "available", "W", "p", "degenerate")
_BLOCK_CELLS = 1 << 18


class Partial:
    """The tested ranges of one audit, one file each, written in one step.

    Parameters
    ----------
    folder : str
        If they are kept.
    plan : dict
        Everything that the tests depend on. The files of an interrupted run are used if its plan was the same.
    """

    def __init__(self, folder: str, plan: dict[str, Any]) -> None:
        self.folder = folder
        earlier = self._earlier_plan()
        if earlier != plan:
            if isinstance(earlier, dict):
                changed = ", ".join(key for key in plan if earlier.get(key) != plan[key])
                say(f"audit: starting again, because the interrupted run here had other settings ({changed})")
            remove_tree(folder)
            write_json(join(folder, _PLAN), plan)

    def _earlier_plan(self) -> Any:
        where = join(self.folder, _PLAN)
        try:
            return read_json(where) if kind_of(where) == "file" else None
        except ValueError:
            return None

    def finished(self) -> set[int]:
        """Numbers of the ranges already tested."""
        names = [name.removesuffix(".safetensors") for name in names_in(self.folder)]
        found = {int(name.removeprefix("range-")) for name in names if name.startswith("range-") and name[6:].isdigit()}
        if found:
            say(f"audit: resuming an interrupted run, {len(found)} ranges of classes are already tested")
        return found

    def save(self, index: int, tests: RangeTests) -> None:
        write_tensors(self._file(index), {name: getattr(tests, name) for name in _ARRAYS})

    def load(self, index: int) -> RangeTests:
        return RangeTests(**read_tensors(self._file(index), "out", self.folder))

    def blocks(self, ranges: int, classes: int, dimensions: int) -> Iterator[RangeTests]:
        """The tests of all classes in order, some classes at a time; those the store has no row of are untested."""
        step = max(1, _BLOCK_CELLS // dimensions)
        source = (self.load(index) for index in range(ranges))
        current = next(source, None)
        for first in range(0, classes, step):
            stop = min(first + step, classes)
            block = RangeTests.untested(first, stop, dimensions)
            while current is not None:
                block.take_from(current)
                if len(current.classes) and current.classes[-1] >= stop:
                    break
                current = next(source, None)
            yield block

    def _file(self, index: int) -> str:
        return join(self.folder, f"range-{index:06d}.safetensors")
