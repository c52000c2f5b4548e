"""The audit in numbers: by class, by dimension, and the distributions of W and p; gathered block by block."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np

from ghost_ray.jobs.audit.class_tests import RangeTests
from ghost_ray.jobs.audit.verdict import PAPER_CAVEATS, PAPER_RATES, verdict
from ghost_ray.store import ClassCount, Store

ALPHAS = (1e-10, 1e-6, 1e-4, 1e-3, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
QUANTILES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_WORST = 20
_FEW_SAMPLES = 30
_P_EDGES = np.linspace(0.0, 1.0, 21)
# Bins of 1 − W, evenly in its logarithm: fine ones to read quantiles off, of which the histogram joins several.
_DEFECT_LOW, _DECADES, _FINE, _JOINED = 1e-6, 6, 400, 40


class Rejections(TypedDict):
    """Tests of one class or dimension."""

    tests: int
    rejected: int
    rejected_fraction: float
    mean_W: float
    lowest_W: float


class WorstClass(ClassCount, Rejections):
    pass


class WorstDimension(Rejections):
    dimension: int


class SampledClass(ClassCount):
    """A class of which only ``n`` rows were tested."""

    available: int


class WHistogram(TypedDict):
    defect_edges: list[float]  # of 1 − W
    counts: list[int]


class PHistogram(TypedDict):
    edges: list[float]
    counts: list[int]


class RateAtAlpha(TypedDict):
    alpha: float
    rejected_fraction: float


class AuditFigures(TypedDict):
    """What an audit says in a few figures; a study takes them from each network's."""

    verdict: str
    tests: int
    rejected: int
    rejected_fraction: float
    degenerate: int
    alpha: float
    family: str
    median_n: float


class AuditSummary(AuditFigures):
    """What summary.json holds."""

    classes: int
    dimensions: int
    rows_tested: int
    paper: dict[str, float]  # network → rejected_fraction
    paper_caveats: list[str]
    W_quantiles: dict[str, float]
    W_histogram: WHistogram
    p_histogram: PHistogram
    by_alpha: list[RateAtAlpha]
    worst_classes: list[WorstClass]
    worst_dimensions: list[WorstDimension]
    untested_classes: list[ClassCount]
    thin_classes: list[ClassCount]
    sampled_classes: list[SampledClass]


class Distribution:
    """How W is distributed over the tests; quantiles are right to 1 % of 1 − W."""

    def __init__(self) -> None:
        self._counts = np.zeros(_DECADES * _FINE, np.int64)

    def add(self, W: np.ndarray) -> None:
        """Count the statistics of some tests, [m]."""
        position = np.log10(np.maximum(1.0 - W, _DEFECT_LOW) / _DEFECT_LOW) * _FINE
        place = np.minimum(position.astype(np.int64), len(self._counts) - 1)
        self._counts += np.bincount(place, minlength=len(self._counts))

    def quantile(self, share: float) -> float:
        """The W below which ``share`` of the tests lie."""
        # Few lie far from 1: counting from the largest 1 − W down follows W upwards.
        reached = np.cumsum(self._counts[::-1])
        bin_from_top = int(np.searchsorted(reached, share * reached[-1], side="left"))
        return 1.0 - float(_defect(len(self._counts) - bin_from_top - 0.5))

    def histogram(self) -> WHistogram:
        """Counts of 1 − W in logarithmic bins, ten per decade."""
        edges = _defect(np.arange(0, len(self._counts) + 1, _JOINED))
        counts = self._counts.reshape(-1, _JOINED).sum(axis=1)
        return {"defect_edges": [float(f"{edge:.6g}") for edge in edges], "counts": counts.tolist()}


def _defect(position: Any) -> Any:
    return _DEFECT_LOW * 10.0 ** (np.asarray(position) / _FINE)


class Summary:
    """Sums over all tests, to be added to block by block in class order."""

    def __init__(self, store: Store) -> None:
        self._store, classes = store, store.classes
        self._class = _Axis(classes)
        self._dimension = _Axis(store.dimensions)
        self._n = np.zeros(classes, np.int64)
        self._available = np.zeros(classes, np.int64)
        self._p = np.zeros(len(_P_EDGES) - 1, np.int64)
        self._below = np.zeros(len(ALPHAS), np.int64)

    def add(self, tests: RangeTests, adjusted: np.ndarray, rejected: np.ndarray) -> None:
        """Add the tests of some classes, with Holm's answer for each cell [C, D]."""
        here = slice(int(tests.classes[0]), int(tests.classes[-1]) + 1)
        tested = ~tests.degenerate
        self._n[here], self._available[here] = tests.n, tests.available
        self._class.add(here, tests.W, tested, rejected, axis=1)
        self._dimension.add(slice(None), tests.W, tested, rejected, axis=0)
        self._p += np.histogram(tests.p[tested], _P_EDGES)[0]
        small = np.sort(adjusted[tested & (adjusted < 1)])
        self._below += np.searchsorted(small, ALPHAS, side="right")

    def result(self, alpha: float, family: str, W: Distribution) -> AuditSummary:
        """The content of summary.json."""
        tests, rejected = int(self._class.tests.sum()), int(self._class.rejected.sum())
        rate = rejected / tests
        tested = self._n >= 3
        median_n = float(np.median(self._n[tested]))

        def named(labels: np.ndarray) -> list[ClassCount]:
            return [self._store.class_count(k, self._n[k]) for k in labels]

        sampled = np.flatnonzero(self._available > self._n)
        return {
            "verdict": verdict(rate, alpha, family, self._n, self._class.tests, W.quantile(0.5)),
            "tests": tests,
            "rejected": rejected,
            "rejected_fraction": rate,
            "degenerate": len(self._n) * self._store.dimensions - tests,
            "alpha": alpha,
            "family": family,
            "classes": len(self._n),
            "dimensions": self._store.dimensions,
            "rows_tested": int(self._n.sum()),
            "median_n": median_n,
            "paper": PAPER_RATES,
            "paper_caveats": PAPER_CAVEATS,
            "W_quantiles": {f"{share:g}": round(W.quantile(share), 9) for share in QUANTILES},
            "W_histogram": W.histogram(),
            "p_histogram": {"edges": [round(edge, 2) for edge in _P_EDGES.tolist()], "counts": self._p.tolist()},
            "by_alpha": [
                {"alpha": a, "rejected_fraction": count / tests}
                for a, count in zip(ALPHAS, self._below.tolist(), strict=True)
            ],
            "worst_classes": [{**self._store.class_count(k, self._n[k]), **entry} for k, entry in self._class.worst()],
            "worst_dimensions": [{"dimension": d, **entry} for d, entry in self._dimension.worst()],
            "untested_classes": named(np.flatnonzero(~tested)),
            "thin_classes": named(np.flatnonzero(tested & (self._n < _FEW_SAMPLES))),
            "sampled_classes": [
                {**entry, "available": int(self._available[entry["class"]])} for entry in named(sampled)
            ],
        }


class _Axis:
    """Tests, rejections and W summed along one axis of the classes × dimensions."""

    def __init__(self, size: int) -> None:
        self.tests, self.rejected = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.total, self.lowest = np.zeros(size), np.ones(size)

    def add(self, here: slice, W: np.ndarray, tested: np.ndarray, rejected: np.ndarray, axis: int) -> None:
        self.tests[here] += np.count_nonzero(tested, axis=axis)
        self.rejected[here] += np.count_nonzero(rejected, axis=axis)
        self.total[here] += np.where(tested, W, 0.0).sum(axis=axis)
        # Degenerate cells hold W = 1 and so never are the lowest.
        self.lowest[here] = np.minimum(self.lowest[here], W.min(axis=axis))

    def worst(self) -> list[tuple[int, Rejections]]:
        """The entries with the largest share of rejections; among equals, the lowest mean W."""
        tests = np.maximum(self.tests, 1)
        share, mean = self.rejected / tests, np.where(self.tests > 0, self.total / tests, 1.0)
        order = np.lexsort((mean, -share))
        return [
            (
                int(i),
                {
                    "tests": int(self.tests[i]),
                    "rejected": int(self.rejected[i]),
                    "rejected_fraction": float(share[i]),
                    "mean_W": float(mean[i]),
                    "lowest_W": float(self.lowest[i]),
                },
            )
            for i in order[self.tests[order] > 0][:_WORST]
        ]
