"""Results as the jobs write them, made of random numbers in a moment: audits, evaluations, models, versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray import metrics, significance
from ghost_ray.files.manifest import Network
from ghost_ray.gaussians import Gaussians
from ghost_ray.metrics import OpenSetScores
from ghost_ray.model import ModelManifest, write_model
from ghost_ray.normality import holm, shapiro_wilk

METHODS = ("ghost", "msp", "maxlogit", "energy")


def class_names(classes: int) -> list[str]:
    kinds = ("tench", "goldfish", "hammerhead", "house finch", "junco", "bulbul", "magpie", "kite", "box turtle")
    return [kinds[k] if k < len(kinds) else f"{kinds[k % len(kinds)]} {k}" for k in range(classes)]


def write_json(folder: Path, name: str, value: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(value))


def manifest(kind: str, network: Network, **more: Any) -> dict[str, Any]:
    common = {"format": "ghost_ray", "format_version": 1, "kind": kind, "created": "2031-05-04T10:11:12+00:00"}
    return {**common, "network": network.model_dump(), "rows": 1000, **more}


def make_audit(
    folder: Path, classes: int = 8, dimensions: int = 24, samples: int = 60, name: str = "ResNet-56", seed: int = 0
) -> dict[str, np.ndarray]:
    """An audit of columns of which some are skewed; returns the columns of normality.parquet."""
    rng = np.random.default_rng(seed)
    skewed = rng.random(dimensions) < 0.2
    n = rng.integers(max(samples // 2, 4), samples, classes)
    W, p = (np.full((classes, dimensions), np.nan) for _ in range(2))
    drawn = []
    for k in range(classes):
        values = rng.normal(size=(n[k], dimensions))
        values[:, skewed] = np.exp(values[:, skewed] * rng.uniform(0.2, 0.8))
        values[:, 0] = 3.0 if k == 1 else values[:, 0]
        drawn.append(values)
        varying = np.ptp(values, axis=0) > 0
        W[k, varying], p[k, varying] = shapiro_wilk(values[:, varying])
    columns = _audit_columns(W, p, n)
    order = np.argsort(columns["W"])[: int((~columns["degenerate"]).sum())]
    examples = []
    for place, row in enumerate([*order[:8].tolist(), *order[[len(order) // 3, len(order) // 2]].tolist()]):
        k, d = int(columns["class"][row]), int(columns["dimension"][row])
        x = np.sort(drawn[k][:, d])
        facts = {name: columns[name][row].item() for name in ("class", "dimension", "n", "W", "p")}
        kind = "worst" if place < 8 else "typical"
        examples.append(
            {"kind": kind, **facts, "mean": float(x.mean()), "std": float(x.std(ddof=1)), "values": x.tolist()}
        )
    _write_audit(folder, columns, examples, class_names(classes), name)
    return columns


def make_large_audit(folder: Path, classes: int = 1000, dimensions: int = 1280, seed: int = 0) -> None:
    """An audit of ImageNet's size: W and p drawn, with classes and dimensions that stand out."""
    rng = np.random.default_rng(seed)
    oddness = rng.gamma(1.5, 0.3, (classes, 1)) + rng.gamma(1.5, 0.3, (1, dimensions))
    defect = 10 ** (-3.2 + 0.5 * oddness + 0.25 * rng.normal(size=(classes, dimensions)))
    n = rng.integers(700, 1300, classes)
    p = np.exp(-np.maximum(defect * n[:, None] / 1.2 - 1, 0)) * rng.random((classes, dimensions))
    columns = _audit_columns(1 - np.minimum(defect, 0.9), p, n)
    examples = []
    for place, row in enumerate(np.argsort(columns["W"])[:12].tolist()):
        x = np.sort(rng.gamma(1.0, size=500))
        facts = {name: columns[name][row].item() for name in ("class", "dimension", "n", "W", "p")}
        kind = "worst" if place < 8 else "typical"
        examples.append(
            {"kind": kind, **facts, "mean": float(x.mean()), "std": float(x.std(ddof=1)), "values": x.tolist()}
        )
    _write_audit(folder, columns, examples, class_names(classes), "MAE-H")


def _audit_columns(W: np.ndarray, p: np.ndarray, n: np.ndarray) -> dict[str, np.ndarray]:
    classes, dimensions = W.shape
    degenerate = np.isnan(W).ravel()
    rejected, adjusted = np.zeros(W.size, bool), np.ones(W.size)
    rejected[~degenerate], adjusted[~degenerate] = holm(p.ravel()[~degenerate], 0.05)
    return {
        "class": np.repeat(np.arange(classes, dtype=np.int32), dimensions),
        "dimension": np.tile(np.arange(dimensions, dtype=np.int32), classes),
        "n": np.repeat(n, dimensions).astype(np.int32),
        "W": np.where(degenerate, 1.0, W.ravel()),
        "p": np.where(degenerate, 1.0, p.ravel()),
        "p_holm": adjusted,
        "rejected": rejected,
        "degenerate": degenerate,
    }


def _write_audit(
    folder: Path, columns: dict[str, np.ndarray], examples: list[dict[str, Any]], names: list[str], name: str
) -> None:
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "normality.parquet")
    pq.write_table(pa.Table.from_pylist(examples), folder / "examples.parquet")
    tests, rejected = int((~columns["degenerate"]).sum()), int(columns["rejected"].sum())
    network = Network(name=name, classes=len(names), dimensions=int(columns["dimension"].max()) + 1)
    summary = {
        "tests": tests,
        "degenerate": int(columns["degenerate"].sum()),
        "rejected": rejected,
        "rejected_fraction": rejected / tests,
        "alpha": 0.05,
        "family": "all",
        "classes": network.classes,
        "dimensions": network.dimensions,
    }
    write_json(folder, "summary.json", summary)
    write_json(folder, "manifest.json", manifest("audit", network, class_names=names))


def make_evaluation(
    folder: Path,
    classes: int = 8,
    knowns: int = 800,
    sets: tuple[str, ...] = ("near", "far"),
    methods: tuple[str, ...] = METHODS,
    names: list[str] | None = None,
    network: str = "ResNet-56",
    seed: int = 0,
) -> dict[str, Any]:
    """An evaluation of simulated scores, measured by the project's own metrics; returns metrics.json."""
    rng = np.random.default_rng(seed)
    names = names or class_names(classes)
    label = np.sort(rng.integers(0, classes, knowns))
    ability = rng.uniform(0.6, 0.98, classes)
    correct = rng.random(knowns) < ability[label]
    results, curves, per_class, tests = [], [], [], []
    for position, unknown in enumerate(sets):
        scored = {}
        for rank, method in enumerate(methods):
            gap = 2.2 - 0.25 * rank + 0.8 * position
            known = rng.normal(gap * np.where(correct, 1.0, 0.6), 1.0) + 0.5 * ability[label]
            scored[method] = OpenSetScores(known, correct, label, rng.normal(0, 1, knowns))
        for method, scores in scored.items():
            pair = {"method": method, "unknown": unknown}
            results.append({**pair, **metrics.evaluate(scores)})
            curves += [{**pair, **point} for point in _curves(scores)]
            per_class += [{**pair, **row} for row in _per_class(scores, names)]
        compared = significance.compare(scored, "ghost", 4, 200) if "ghost" in methods else []
        tests += [{"unknown": unknown, **comparison} for comparison in compared]
    summary = {
        "closed_set_accuracy": float(correct.mean()),
        "knowns": knowns,
        "classes": classes,
        "dimensions": 24,
        "methods": list(methods),
        "unknowns": dict.fromkeys(sets, knowns),
        "results": results,
        "groups": [],
        "notes": ["react: the percentile was taken from a sample"],
    }
    write_json(folder, "metrics.json", summary)
    write_json(folder, "significance.json", {"draws": 4, "draw_size": 200, "alpha": 0.05, "tests": tests})
    write_json(folder, "example.json", _example(rng, names[0], sets[0]))
    pq.write_table(pa.Table.from_pylist(curves), folder / "curves.parquet")
    pq.write_table(pa.Table.from_pylist(per_class), folder / "per_class.parquet")
    pq.write_table(_distances(rng, sets), folder / "zscores.parquet")
    about = Network(name=network, classes=classes, dimensions=24)
    write_json(folder, "manifest.json", manifest("evaluation", about, methods=list(methods)))
    return summary


def _curves(scores: OpenSetScores) -> list[dict[str, Any]]:
    top, bottom = metrics.extreme_classes(scores)
    found = {
        "oscr": metrics.oscr_curve(scores),
        "roc": metrics.roc_curve(scores),
        "oscr_top": metrics.oscr_curve(scores.of_classes(top)),
        "oscr_bottom": metrics.oscr_curve(scores.of_classes(bottom)),
    }
    rows = []
    for name, curve in found.items():
        thin = curve.thin(500)
        rows += [{"curve": name, "x": x, "y": y} for x, y in zip(thin.fpr, thin.value, strict=True)]
    return rows + [{"curve": "v", "x": x, "y": y} for x, y in metrics.cv_curve(scores) if y is not None]


def _per_class(scores: OpenSetScores, names: list[str]) -> list[dict[str, Any]]:
    fair = metrics.class_rates(scores, metrics.threshold_at_fpr(scores, metrics.FAIR_FPR))
    closed, alone = metrics.class_rates(scores, -np.inf), metrics.f_at_c_by_class(scores)
    return [
        {
            "class": k,
            "name": names[k],
            "n": int((scores.label == k).sum()),
            "accuracy": float(closed.ccr[i]),
            "ccr": float(fair.ccr[i]),
            "f_at_c95": alone[k],
        }
        for i, k in enumerate(fair.classes.tolist())
    ]


def _distances(rng: np.random.Generator, sets: tuple[str, ...]) -> pa.Table:
    edges = np.append(np.linspace(15, 60, 60), 110)
    rows = []
    for position, name in enumerate(("known", *sets)):
        counts = np.histogram(rng.normal(22 + 6 * position, 4, 2000), edges)[0]
        rows += [
            {"set": name, "left": left, "right": right, "count": int(count)}
            for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
    return pa.Table.from_pylist(rows)


def _example(rng: np.random.Generator, name: str, unknown: str) -> dict[str, Any]:
    mean = np.sort(rng.normal(size=24))
    sample = {"key": "n01/a.jpg", "logit": 12.0}
    known, strange = np.abs(rng.normal(size=24)), np.abs(rng.normal(scale=2.5, size=24))
    return {
        "class": 0,
        "name": name,
        "dimensions": rng.permutation(24).tolist(),
        "mean": mean.tolist(),
        "std": rng.uniform(0.1, 0.6, 24).tolist(),
        "known": {**sample, "set": "known", "s": known.sum(), "gamma": 12 / known.sum(), "z": known.tolist()},
        "unknown": {**sample, "set": unknown, "s": strange.sum(), "gamma": 12 / strange.sum(), "z": strange.tolist()},
    }


def make_model(folder: Path, classes: int = 8, dimensions: int = 24, name: str = "ResNet-56", seed: int = 0) -> None:
    """A model in which one class has no Gaussian."""
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=(classes, dimensions)), rng.uniform(0.1, 1.0, (classes, dimensions))
    count = rng.integers(20, 90, classes)
    count[-1], mean[-1], std[-1] = 1, 0.0, 0.0
    network = Network(name=name, classes=classes, dimensions=dimensions)
    about = ModelManifest.model_validate(
        manifest("model", network, class_names=class_names(classes), missing_classes=1)
    )
    folder.mkdir(parents=True)
    gaussians = Gaussians(mean.astype(np.float32), std.astype(np.float32), count.astype(np.int64))
    write_model(str(folder), gaussians, None, about)


def make_version(folder: Path, previous: str | None = "0001-aaaaaaaaaaaa") -> dict[str, Any]:
    """A registry's version, with the model, audit and evaluation in it; returns drift.json."""
    make_model(folder / "model")
    make_audit(folder / "audit")
    make_evaluation(folder / "evaluation")
    pairs = {"accuracy": [0.8, 0.75], "rejected_fraction": [0.02, 0.03], "auoscr": {"near": [0.7, 0.72]}}
    drift = {
        "previous": previous,
        "current": folder.name,
        "changed": ["weights"],
        **(pairs if previous else {}),
        "rows": [900, 1000],
        "classes_gained": ["kite"],
        "classes_lost": [],
        "mean_shift": {
            "median": 0.1,
            "largest": 0.4,
            "classes": [{"class": k, "name": name, "shift": 0.4 - 0.1 * k} for k, name in enumerate(class_names(3))],
        },
    }
    write_json(folder, "drift.json", drift)
    gates = [{"name": "accuracy", "value": 0.05, "limit": 0.02, "text": "accuracy fell by 0.05", "passed": False}]
    about = Network(name="ResNet-56", classes=8, dimensions=24)
    write_json(
        folder, "manifest.json", manifest("version", about, version=folder.name, fingerprint="a" * 64, gates=gates)
    )
    return drift
