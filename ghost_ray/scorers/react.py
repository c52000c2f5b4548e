"""Rectified activations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ghost_ray.compiled import compiled, read_only
from ghost_ray.rows import Floats, Ints, Rows, logsumexp
from ghost_ray.scorers._common import writable
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Scorer, State

HALF = 1 << 16  # values of one half of a float32


@compiled()
def ordered_bits(raw: int) -> int:
    """An integer for the 32 bits of each float32, in the numbers' own order."""
    return raw ^ (0xFFFFFFFF if raw & 0x80000000 else 0x80000000)


@compiled()
def _count_halves(raw: npt.NDArray[np.uint32], upper: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> None:
    """Count upper halves into counts[0]; or, where ``upper`` names some, lower halves under the i-th in counts[i]."""
    for i in range(len(raw)):
        bits = ordered_bits(int(raw[i]))
        if len(upper) == 0:
            counts[0, bits >> 16] += 1
        for place in range(len(upper)):
            if bits >> 16 == upper[place]:
                counts[place, bits & 0xFFFF] += 1


def from_ordered_bits(bits: int) -> float:
    """The float32 that an integer of ``ordered_bits`` stands for."""
    raw = bits ^ (0x80000000 if bits & 0x80000000 else 0xFFFFFFFF)
    return float(np.array([raw], np.uint32).view(np.float32)[0])


class BitCounts(State):
    """How many embedding entries have each upper half of bits, or each lower half under given upper halves."""

    def __init__(self, upper: tuple[int, ...] = ()) -> None:
        self.upper = upper
        self.counts: npt.NDArray[np.int64] = np.zeros((max(1, len(upper)), HALF), np.int64)

    def add(self, batch: Rows) -> None:
        raw = np.ascontiguousarray(batch.embedding, np.float32).view(np.uint32).ravel()
        self.counts = writable(self.counts)
        _count_halves(read_only(raw), np.array(self.upper, np.int64), self.counts)

    def merge(self, other: BitCounts) -> None:
        self.counts = self.counts + other.counts


@register
class ReAct(Scorer):
    """LSE(W · min(f, c) + b), c = the P-th percentile of all entries of the training embeddings.

    Sun et al., *ReAct: Out-of-distribution Detection With Rectified Activations*, NeurIPS 2021,
    https://arxiv.org/abs/2111.12797.

    Parameters
    ----------
    percentile : float, default 90
        P, in [0, 100], linear between order statistics as in ``numpy.percentile``. OpenOOD's code has 90, that of ViM
        and of NINCO 99: which is better depends on the network, and the difference can be large.

    Notes
    -----
    The percentile is exact at any number of rows: the first pass counts the upper 16 bits
    of every entry, the second the lower 16 bits of the entries that share them with the order statistics sought.
    """

    name = "react"
    title = "ReAct"
    needs_head = True
    fits_on_logits = False
    passes = 2
    keeps = ()

    threshold_: float

    def __init__(self, percentile: float = 90.0) -> None:
        if not 0 <= percentile <= 100:
            raise ValueError(f"{self.name}: percentile must lie in [0, 100], got {percentile}")
        self.percentile = percentile

    def begin(self, pass_index: int) -> State:
        return BitCounts() if pass_index == 0 else BitCounts(tuple(sorted({u for u, _ in self._sought})))

    def end_pass(self, pass_index: int, state: State) -> None:
        assert isinstance(state, BitCounts)
        if pass_index == 0:
            self._locate(state.counts[0])
            return
        value = dict(zip(state.upper, state.counts, strict=True))
        below, above = (
            from_ordered_bits((upper << 16) + int(np.searchsorted(np.cumsum(value[upper]), rank, side="right")))
            for upper, rank in self._sought
        )
        self.threshold_ = below + self._between * (above - below)

    def _locate(self, counts: Ints) -> None:
        """The upper bits of the two neighbouring order statistics, and their ranks among the entries with them."""
        total = int(counts.sum())
        if total == 0:
            raise ValueError(f"{self.name}: no labelled training rows")
        position = self.percentile / 100 * (total - 1)
        lower = min(int(position), total - 1)
        self._between = position - lower
        cumulative = np.cumsum(counts)
        self._sought: list[tuple[int, int]] = []
        for rank in (lower, min(lower + 1, total - 1)):
            upper = int(np.searchsorted(cumulative, rank, side="right"))
            self._sought.append((upper, rank - int(cumulative[upper] - counts[upper])))

    def score_finite(self, batch: Rows) -> Floats:
        clipped = np.minimum(batch.embedding, np.float32(self.threshold_))
        return logsumexp(self.head.logits(clipped))
