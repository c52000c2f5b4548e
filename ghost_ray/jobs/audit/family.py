"""Holm's correction over the tests of an audit: one family of all tests, or one per class."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ghost_ray.jobs.audit.class_tests import RangeTests
from ghost_ray.normality import HolmFamily

Correct = Callable[[RangeTests], tuple[np.ndarray, np.ndarray]]


def correction(blocks: Iterator[RangeTests], tests: int, alpha: float, family: str) -> Correct:
    """A function from a block to Holm's answer for it: adjusted p and whether it is rejected, each [C, D]."""
    if family == "class":
        return lambda block: _by_class(block, alpha)
    p = np.empty(tests)
    filled = 0
    for block in blocks:
        tested = block.p[~block.degenerate]
        p[filled : filled + len(tested)] = tested
        filled += len(tested)
    whole = HolmFamily(p, alpha)
    return lambda block: _of_all(whole, block)


def _by_class(block: RangeTests, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    adjusted, rejected = np.ones(block.p.shape), np.zeros(block.p.shape, np.bool_)
    for row, tested in enumerate(~block.degenerate):
        if tested.any():
            p = block.p[row, tested]
            rejected[row, tested], adjusted[row, tested] = HolmFamily(p.copy(), alpha)(p)
    return adjusted, rejected


def _of_all(family: HolmFamily, block: RangeTests) -> tuple[np.ndarray, np.ndarray]:
    tested = ~block.degenerate
    adjusted, rejected = np.ones(block.p.shape), np.zeros(block.p.shape, np.bool_)
    rejected[tested], adjusted[tested] = family(block.p[tested])
    return adjusted, rejected
