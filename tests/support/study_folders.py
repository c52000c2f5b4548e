"""A study's folder without the jobs: random scores, measured by the project's own metrics."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from ghost_ray import metrics
from ghost_ray.metrics import OpenSetScores
from ghost_ray.report.study.study_findings import Cell, NetworkTest, Study
from support.studies import of_the_paper

CLASSES = 20


def write_study(
    folder: Path, networks: tuple[str, ...], sets: tuple[str, ...], methods: tuple[str, ...], rows: int = 400
) -> Study:
    """Scores of every method on every set, images of some rows, and the study that they make."""
    rng = np.random.default_rng(0)
    study = of_the_paper("table-5", networks)
    _write_images(folder, rows, rng)
    cells: list[Cell] = []
    tests: list[NetworkTest] = []
    for place, network in enumerate(study["networks"]):
        name = network["name"]
        network["unknowns"] = dict.fromkeys(sets, rows)
        network["evaluations"] = {"evaluation": [[method, unknown] for unknown in sets for method in methods]}
        network["closed_set_accuracy"] = 0.7 + 0.05 * place
        network["audit"]["rejected_fraction"] = 0.01 * (place + 1)
        evaluation = folder / name / "evaluation"
        (evaluation / "scores").mkdir(parents=True)
        stores = {"known": str(folder / "known"), "unknown": dict.fromkeys(sets, str(folder / "other"))}
        (evaluation / "manifest.json").write_text(json.dumps({"config": stores}))
        label = np.sort(rng.integers(0, CLASSES, rows))
        correct = rng.random(rows) < 0.75
        for rank, method in enumerate(methods):
            known = rng.normal(2.0 - 0.1 * rank + correct, 1.0)
            _write_scores(evaluation, method, "known", known, np.where(correct, label, (label + 1) % CLASSES), label)
            for unknown in sets:
                score = rng.normal(0, 1, rows)
                _write_scores(evaluation, method, unknown, score, rng.integers(0, CLASSES, rows), np.full(rows, -1))
                found = metrics.evaluate(OpenSetScores(known, correct, label, score))
                at = {"network": name, "unknown": unknown, "method": method}
                values = {metric.field: metric.read(found) for metric in metrics.registered()}
                cells += [_cell(at, field, value) for field, value in values.items()]
                if method != methods[0]:
                    tests += [_test(at, metric.field, rank) for metric in metrics.tested()]
    study |= {"methods": list(methods), "unknowns": list(sets), "results": cells, "tests": tests}
    study["groups"] = {"near": list(sets[:2])}
    return study


def _cell(at: dict[str, str], metric: str, value: float | None) -> Cell:
    return {**at, "metric": metric, "value": value, "std": 0.01}  # type: ignore[typeddict-item]


def _test(at: dict[str, str], metric: str, rank: int) -> NetworkTest:
    p = 0.001 * rank
    difference = {"mean": 0.7, "reference_mean": 0.8, "difference": -0.1, "t": -3.0}
    outcome = {"p": p, "p_bonferroni": p, "significant": p < 0.005, "note": ""}
    return {**at, "metric": metric, "reference": "ghost", **difference, **outcome}  # type: ignore[typeddict-item]


def _write_scores(
    evaluation: Path, method: str, name: str, score: np.ndarray, pred: np.ndarray, label: np.ndarray
) -> None:
    keys = pa.array([f"{'known' if name == 'known' else 'other'}/{row}.jpg" for row in range(len(score))])
    columns = {"key": keys, "pred": pa.array(pred, pa.int32()), "label": pa.array(label, pa.int32()), "score": score}
    pq.write_table(pa.table(columns), evaluation / "scores" / f"{method}__{name}.parquet")


def _write_images(folder: Path, rows: int, rng: np.random.Generator) -> None:
    """A picture for every row, as noisy as photographs are; stores are their manifests alone."""
    names = [f"<i>class</i> {k}" for k in range(CLASSES)]
    for part in ("known", "other"):
        images = folder / "images" / part / part
        images.mkdir(parents=True)
        stream = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (112, 112, 3)).astype(np.uint8)).save(stream, "JPEG", quality=60)
        for row in range(rows):
            (images / f"{row}.jpg").write_bytes(stream.getvalue())
        (folder / part).mkdir()
        config = {"data": str(folder / "images" / part)}
        (folder / part / "manifest.json").write_text(json.dumps({"config": config, "class_names": names}))
