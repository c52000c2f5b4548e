"""Checking Parquet's levels, in machine code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ghost_ray.compiled import compiled


@compiled()
def all_equal_or_first(data: NDArray[np.uint8], bits: int, count: int, period: int, first: int, other: int) -> bool:
    """Whether ``count`` levels are ``first`` at every multiple of ``period`` and ``other`` elsewhere.

    Parameters
    ----------
    data : array of shape [n], uint8
        Levels of ``bits`` bits each in Parquet's hybrid of runs and bit-packed groups of eight.
    bits, count, period, first, other : int
    """
    at = 0
    seen = 0
    width = (bits + 7) // 8
    while seen < count:
        header = 0
        shift = 0
        while True:
            if at >= len(data) or shift > 56:
                return False
            byte = int(data[at])
            at += 1
            header |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        repeats = header >> 1
        if repeats == 0:
            return False
        if header & 1:
            stop = at + repeats * bits
            if repeats > len(data) or stop > len(data):
                return False
            for i in range(min(8 * repeats, count - seen)):
                level = 0
                for b in range(bits):
                    bit = i * bits + b
                    level |= ((int(data[at + bit // 8]) >> (bit % 8)) & 1) << b
                if level != (first if (seen + i) % period == 0 else other):
                    return False
            seen += min(8 * repeats, count - seen)
        else:
            stop = at + width
            if stop > len(data):
                return False
            level = 0
            for b in range(width):
                level |= int(data[at + b]) << (8 * b)
            run = min(repeats, count - seen)
            until_first = (period - seen % period) % period
            holds_first = until_first < run
            holds_other = period > 1 and (until_first > 0 or run > 1)
            if (holds_first and level != first) or (holds_other and level != other):
                return False
            seen += run
        at = stop
    return True
