"""Holm's correction over the tests of an audit: one family of all, or one a class."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ghost_ray.audit.testing import RangeTests
from ghost_ray.normality import holm

Correct = Callable[[RangeTests], tuple[np.ndarray, np.ndarray]]


def correction(blocks: Iterator[RangeTests], tests: int, alpha: float, family: str) -> Correct:
    """A function from a block to Holm's answer for it: adjusted p and whether it is rejected, each [C, D].

    For one family of all, the blocks must be asked for in the order in which they came here.
    """
    if family == "class":
        return lambda block: _by_class(block, alpha)
    return _Whole(blocks, tests, alpha)


def _by_class(block: RangeTests, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    adjusted, rejected = np.ones(block.p.shape), np.zeros(block.p.shape, np.bool_)
    for row, tested in enumerate(~block.degenerate):
        if tested.any():
            rejected[row, tested], adjusted[row, tested] = holm(block.p[row, tested], alpha)
    return adjusted, rejected


class _Whole:
    def __init__(self, blocks: Iterator[RangeTests], tests: int, alpha: float) -> None:
        import ray

        p = np.empty(tests)
        filled = 0
        for block in blocks:
            tested = block.p[~block.degenerate]
            p[filled : filled + len(tested)] = tested
            filled += len(tested)
        # In a task, since putting tens of millions of p-values in order takes more memory than a driver should.
        reference = ray.put(p)
        del p
        self._rejected, self._adjusted = ray.get(ray.remote(num_cpus=1)(holm).remote(reference, alpha))
        self._used = 0

    def __call__(self, block: RangeTests) -> tuple[np.ndarray, np.ndarray]:
        tested = ~block.degenerate
        here = slice(self._used, self._used + int(np.count_nonzero(tested)))
        self._used = here.stop
        adjusted, rejected = np.ones(block.p.shape), np.zeros(block.p.shape, np.bool_)
        adjusted[tested], rejected[tested] = self._adjusted[here], self._rejected[here]
        return adjusted, rejected
