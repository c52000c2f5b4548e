"""Are the logits logits?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ghost_ray.rows import logsumexp

_FEWEST_ROWS = 5
_TOLERANCE = 5e-3  # of a sum of float16 numbers


def of_logits(logits: npt.NDArray[Any]) -> list[str]:
    """A note where rows [n, K] of logits are probabilities or their logarithms."""
    rows, classes = logits.shape
    if rows < _FEWEST_ROWS or classes < 2:
        return []
    if logits.min() >= 0 and np.abs(logits.sum(axis=1, dtype=np.float64) - 1).max() <= _TOLERANCE:
        return [
            f"no logit is negative and every checked row ({rows:,}) sums to 1: these look like probabilities, and "
            "GHOST, MaxLogit and Energy need the values before the softmax"
        ]
    if logits.max() <= 0 and np.abs(logsumexp(logits)).max() <= _TOLERANCE:
        return [
            f"the exponentials of every checked row of the logits ({rows:,}) sum to 1: these look like logarithms "
            "of probabilities, and GHOST, MaxLogit and Energy need the values before the softmax"
        ]
    return []


def of_negative_top_logits(found: Mapping[str, tuple[int, int]]) -> list[str]:
    """A note if top logits are below zero, which reverses GHOST's ratio.

    Parameters
    ----------
    found : mapping
        What the rows are called → how many of them have a negative top logit, and how many there are.
    """
    named = [f"{count:,} of {rows:,} {called}" for called, (count, rows) in found.items() if count]
    if not named:
        return []
    return [
        f"ghost: the top logit is negative in {', '.join(named)}; "
        "among these, a row that is farther from its class scores higher"
    ]
