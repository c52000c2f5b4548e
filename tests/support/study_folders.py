"""A study's folder without the jobs: random scores, measured by the project's own metrics."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from ghost_ray import metrics
from ghost_ray.jobs.evaluate.illustrating import PICTURES, PICTURES_SCHEMA, SHOWN
from ghost_ray.metrics import OpenSetScores
from ghost_ray.report.study.study_findings import Cell, NetworkTest, Study
from support.studies import of_the_paper

CLASSES = 20


def write_study(
    folder: Path, networks: tuple[str, ...], sets: tuple[str, ...], methods: tuple[str, ...], rows: int = 400
) -> Study:
    """Scores of every method on every set, small copies of images, and the study that they make."""
    rng = np.random.default_rng(0)
    study = of_the_paper("table-5", networks)
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
        _write_pictures(evaluation, methods[0], sets, rng)
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


def _write_pictures(evaluation: Path, method: str, sets: tuple[str, ...], rng: np.random.Generator) -> None:
    """The samples that an evaluation shows, with pictures as noisy as photographs are."""
    stream = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (112, 112, 3)).astype(np.uint8)).save(stream, "JPEG", quality=60)
    found = []
    for name in ("known", *sets):
        beside = {} if name == "known" else {"beside_key": "known/1.jpg", "beside_score": 1.0}
        beside |= {"beside_jpeg": stream.getvalue()} if beside else {}
        names = {"label": "<i>class</i> 1" if name == "known" else "", "pred": "<i>class</i> 2"}
        sample = {"method": method, "set": name, "score": 0.5, "jpeg": stream.getvalue()} | names | beside
        found += [sample | {"key": f"{name}/{row}.jpg"} for row in range(SHOWN)]
    pq.write_table(pa.Table.from_pylist(found, schema=PICTURES_SCHEMA), evaluation / PICTURES)
