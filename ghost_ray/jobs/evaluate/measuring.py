"""From scores to results: metrics, curves and classes of every (method, unknown set), a task each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from ghost_ray import metrics, significance
from ghost_ray.cluster import map_ordered
from ghost_ray.jobs.evaluate.evaluate_plan import KNOWN
from ghost_ray.jobs.evaluate.findings import DrawnValues, GroupResult, PairedTest, PairResult, Significance
from ghost_ray.jobs.evaluate.scoring import SetScores
from ghost_ray.metrics import Metric, OpenSetScores
from ghost_ray.scorers import Scorer

REFERENCE = "ghost"
POINTS = 500  # of a curve
CURVES_SCHEMA = pa.schema(
    [
        ("method", pa.string()),
        ("unknown", pa.string()),
        ("curve", pa.string()),
        ("x", pa.float64()),
        ("y", pa.float64()),
    ]
)
CLASSES_SCHEMA = pa.schema(
    [
        ("method", pa.string()),
        ("unknown", pa.string()),
        ("class", pa.int32()),
        ("name", pa.string()),
        ("n", pa.int64()),
        ("accuracy", pa.float64()),
        ("ccr", pa.float64()),
        ("f_at_c95", pa.float64()),
    ]
)
Pair = tuple[str, str]  # method, unknown set


@dataclass(frozen=True)
class Measured:
    """All pairs measured: scalar results in order, and the long tables."""

    results: list[PairResult]
    curves: pa.Table
    per_class: pa.Table


def open_set(sets: dict[str, SetScores], method: str, unknown: str) -> OpenSetScores:
    """The scores of one method on the knowns and one unknown set."""
    known = sets[KNOWN]
    return OpenSetScores(
        known=known.scores[method],
        correct=known.label == known.pred,
        label=known.label,
        unknown=sets[unknown].scores[method],
    )


def measure_all(
    sets: dict[str, SetScores], scorers: dict[str, Scorer], pairs: Sequence[Pair], class_names: list[str]
) -> Measured:
    """Measure every pair; the order of results is that of ``pairs``."""
    results: list[PairResult] = []
    curves, classes = [], []
    for (method, unknown), (result, curve, per_class) in map_ordered(
        _measure, pairs, sets, class_names, metrics.registered()
    ):
        results.append({"method": method, "unknown": unknown, "rival": scorers[method].rival, **result})
        curves.append(curve)
        classes.append(per_class)
    return Measured(results, pa.concat_tables(curves), pa.concat_tables(classes))


def _measure(
    pair: Pair, sets: dict[str, SetScores], class_names: list[str], measured: list[Metric]
) -> tuple[metrics.Measured, pa.Table, pa.Table]:
    method, unknown = pair
    scores = open_set(sets, method, unknown)
    return metrics.evaluate(scores, measured), _curves(pair, scores), _per_class(pair, scores, class_names)


def _curves(pair: Pair, scores: OpenSetScores) -> pa.Table:
    top, bottom = metrics.of_extreme_classes(scores)
    over_fpr = {
        "oscr": metrics.oscr_curve(scores),
        "roc": metrics.roc_curve(scores),
        "oscr_top": metrics.oscr_curve(top),
        "oscr_bottom": metrics.oscr_curve(bottom),
    }
    points = {name: (curve.fpr, curve.value) for name, full in over_fpr.items() for curve in [full.thin(POINTS)]}
    variation = np.array([(fpr, cv) for fpr, cv in metrics.cv_curve(scores) if cv is not None]).reshape(-1, 2)
    points["v"] = (variation[:, 0], variation[:, 1])
    tables = []
    for name, (x, y) in points.items():
        labels = [np.full(len(x), text, object) for text in (*pair, name)]
        tables.append(pa.table([*labels, x, y], schema=CURVES_SCHEMA))
    return pa.concat_tables(tables)


def _per_class(pair: Pair, scores: OpenSetScores, class_names: list[str]) -> pa.Table:
    fair, closed = metrics.fair_rates(scores), metrics.class_rates(scores, -np.inf)
    f_at_c95 = metrics.f_at_c_by_class(scores)
    classes = fair.classes.tolist()
    columns: list[Any] = [[pair[0]] * len(classes), [pair[1]] * len(classes), classes]
    columns.append([class_names[k] for k in classes])
    columns.append(np.bincount(scores.label, minlength=len(class_names))[classes])
    columns += [closed.ccr, fair.ccr, [f_at_c95[k] for k in classes]]
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, CLASSES_SCHEMA, strict=True)],
        schema=CLASSES_SCHEMA,
    )


def average_groups(results: list[PairResult], groups: dict[str, list[str]]) -> list[GroupResult]:
    """The plain mean over the sets of each group, one object a (method, group); None where a set has none."""
    by_pair = {(result["method"], result["unknown"]): result for result in results}
    methods = list(dict.fromkeys(result["method"] for result in results))
    averages = []
    for group, members in groups.items():
        for method in methods:
            found = [by_pair[method, member] for member in members]
            means = {
                metric.field: _mean([metric.read(result) for result in found])
                for metric in metrics.registered()
                if metric.averaged
            }
            group_result: GroupResult = {"method": method, "group": group, "sets": members}
            averages.append(cast(GroupResult, group_result | means))
    return averages


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def compare_with_ghost(
    sets: dict[str, SetScores], scorers: dict[str, Scorer], unknowns: list[str], draws: int, size: int, seed: int
) -> Significance:
    """Every method on every draw; and paired tests against GHOST, where it and another are among them."""
    variants = [method for method, scorer in scorers.items() if not scorer.rival]
    tests: list[PairedTest] = []
    values: list[DrawnValues] = []
    options = {"draws": draws, "size": size, "seed": seed, "on": metrics.tested()}
    for unknown, drawn in map_ordered(_measure_draws, unknowns, sets, list(scorers), options):
        values += [
            {
                "unknown": unknown,
                "method": method,
                "metric": field,
                "mean": significance.mean_of(found),
                "std": significance.std_of(found),
                "values": [None if np.isnan(value) else float(value) for value in found],
            }
            for method, of_method in drawn.items()
            for field, found in of_method.items()
        ]
        if REFERENCE in scorers and len(scorers) > 1:
            share = max(significance.share_drawn(len(sets[name].label), size) for name in (KNOWN, unknown))
            tests += [
                {"unknown": unknown, **comparison}
                for comparison in significance.compare_drawn(drawn, REFERENCE, share, variants=variants)
            ]
    return {
        "reference": REFERENCE,
        "draws": draws,
        "draw_size": size,
        "drawn": {name: significance.rows_drawn(len(scored.label), size) for name, scored in sets.items()},
        "notes": _cautions(sets, size) if tests else [],
        "seed": seed,
        "correction": "bonferroni",
        "alpha": significance.ALPHA,
        "tests": tests,
        "values": values,
    }


def _cautions(sets: dict[str, SetScores], size: int) -> list[str]:
    called = {name: "knowns" if name == KNOWN else f"unknowns of {name}" for name in sets}
    found = [significance.caution(called[name], len(scored.label), size) for name, scored in sets.items()]
    return [f"significance: {note}" for note in found if note is not None]


def _measure_draws(
    unknown: str, sets: dict[str, SetScores], methods: list[str], options: dict[str, Any]
) -> significance.Values:
    return significance.measure_draws({method: open_set(sets, method, unknown) for method in methods}, **options)
