"""The calls on arrays and the commands on stores of the same rows: the same numbers, to the last bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from support.stores import Toy, write_toy_model
from support.toy_arrays import ToyArrays

import ghost_ray
from ghost_ray.config import AuditConfig, EvaluateConfig, FitConfig, ReportConfig, ScoreConfig
from ghost_ray.files import write_json
from ghost_ray.jobs import audit, evaluate, fit, score
from ghost_ray.model import Model
from ghost_ray.report import run as report

# One of each kind: none to fit, by rows, a bank, by class, with the head, with a random sample.
METHODS = ["ghost", "ghost-gpd", "msp", "knn:k=10", "evm", "react", "nnguide"]
ARRAYS = ToyArrays.make()
TOY = Toy(ARRAYS.head[0], *ARRAYS.head)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return ARRAYS.write(tmp_path_factory.mktemp("with-head"))


@pytest.fixture(scope="module")
def plain_stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return ARRAYS.write(tmp_path_factory.mktemp("without-head"), with_head=False)


def test_fit_and_score(tmp_path: Path, plain_stores: dict[str, str]) -> None:
    fit.run(FitConfig(store=plain_stores["fit"], out=str(tmp_path / "model")))
    written = Model.open(str(tmp_path / "model"))
    model = ghost_ray.fit(*ARRAYS.fit)
    for name in ("mean", "std", "count"):
        np.testing.assert_array_equal(getattr(model.gaussians_, name), getattr(written.gaussians, name))

    known, logits = ARRAYS.known[0], ARRAYS.known[2]
    chosen = model.threshold(accept_known=0.95, features=known, logits=logits)
    options = {"accept_known": 0.95, "known": plain_stores["known"], "out": str(tmp_path / "scores.parquet")}
    result = score.run(ScoreConfig(gaussians=str(tmp_path / "model"), store=plain_stores["known"], **options))
    assert chosen == result["threshold"]
    table = pq.read_table(tmp_path / "scores.parquet").sort_by("key")
    np.testing.assert_array_equal(model.score(known, logits), table["score"].to_numpy())
    accepted = table["accepted"].to_numpy(zero_copy_only=False)
    np.testing.assert_array_equal(model.predict(known, logits), np.where(accepted, table["pred"].to_numpy(), -1))

    strangers = ARRAYS.unknown["near"]
    chosen = model.threshold(accept_fpr=0.1, features=strangers[0], logits=strangers[1])
    options = {"accept_fpr": 0.1, "unknown": plain_stores["near"], "out": str(tmp_path / "other.parquet")}
    result = score.run(ScoreConfig(gaussians=str(tmp_path / "model"), store=plain_stores["near"], **options))
    assert chosen == result["threshold"]


@pytest.mark.parametrize("family", ["all", "class"])
def test_audit(tmp_path: Path, stores: dict[str, str], family: str) -> None:
    options: dict[str, Any] = {"alpha": 0.1, "family": family, "max_n": 120, "seed": 5}
    result = audit.run(AuditConfig(store=stores["fit"], out=str(tmp_path / "audit"), **options))
    found = ghost_ray.audit(*ARRAYS.fit, **options)
    summary = {name: value for name, value in result.items() if name not in ("audit", "store")}
    assert found.summary == summary
    assert (found.tests, found.rejected, found.rejected_fraction) == tuple(
        result[name] for name in ("tests", "rejected", "rejected_fraction")
    )
    table = pq.read_table(tmp_path / "audit/normality.parquet")
    for name in ("W", "p", "p_holm", "degenerate"):
        assert getattr(found, name).shape == (5, 12)
        np.testing.assert_array_equal(getattr(found, name).reshape(-1), table[name].to_numpy())
    assert found.n.max() == 120
    loaded = ghost_ray.Audit.load(str(tmp_path / "audit"))
    assert loaded.summary == summary


@pytest.mark.parametrize("with_head", [True, False])
def test_evaluate(tmp_path: Path, stores: dict[str, str], plain_stores: dict[str, str], with_head: bool) -> None:
    chosen = stores if with_head else plain_stores
    methods = METHODS if with_head else [name for name in METHODS if name != "react"]
    unknown = {name: chosen[name] for name in ARRAYS.unknown}
    options: dict[str, Any] = {"draws": 4, "draw_size": 100, "seed": 2}
    evaluate.run(
        EvaluateConfig(
            fit=chosen["fit"],
            known=chosen["known"],
            unknown=unknown,
            methods=tuple(methods),
            group={"both": "near,far"},
            out=str(tmp_path / "evaluation"),
            **options,
        )
    )
    result = ghost_ray.evaluate(
        fit=ARRAYS.fit,
        known=ARRAYS.known,
        unknown=ARRAYS.unknown,
        methods=methods,
        head=ARRAYS.head if with_head else None,
        group={"both": ["near", "far"]},
        **options,
    )
    result.save(str(tmp_path / "saved"))
    # Stores may be of several networks, and a note says so where nothing tells; arrays of one call are of one.
    metrics = tmp_path / "evaluation" / "metrics.json"
    written = json.loads(metrics.read_text())
    unsure = [note for note in written["notes"] if note.startswith("nothing but the shape")]
    assert len(unsure) == int(not with_head)
    write_json(str(metrics), {**written, "notes": [note for note in written["notes"] if note not in unsure]})
    for name in ("metrics.json", "significance.json", "example.json", "table.md", "table.tex"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "evaluation" / name).read_bytes(), name
    for file in (tmp_path / "evaluation").rglob("*.parquet"):
        assert pq.read_table(tmp_path / "saved" / file.relative_to(tmp_path / "evaluation")).equals(pq.read_table(file))
    assert result.results == json.loads((tmp_path / "evaluation/metrics.json").read_text())["results"]
    # Open stores take the place of arrays.
    opened = {name: ghost_ray.open_store(place) for name, place in chosen.items()}
    again = ghost_ray.evaluate(
        fit=opened["fit"],
        known=opened["known"],
        unknown={name: opened[name] for name in ARRAYS.unknown},
        methods=methods,
        group={"both": ["near", "far"]},
        **options,
    )
    assert again.summary == {**result.summary, "notes": unsure + result.summary["notes"]}


def test_torch_and_numpy_agree() -> None:
    features, labels, logits = (torch.from_numpy(values) for values in ARRAYS.fit)
    by_numpy = ghost_ray.fit(*ARRAYS.fit)
    by_torch = ghost_ray.fit(features.requires_grad_(), labels, logits)
    np.testing.assert_array_equal(by_torch.gaussians_.std, by_numpy.gaussians_.std)
    gamma = by_torch.score(features, logits)
    assert isinstance(gamma, torch.Tensor)
    assert gamma.dtype == torch.float64
    np.testing.assert_array_equal(gamma.numpy(), by_numpy.score(ARRAYS.fit[0], ARRAYS.fit[2]))
    head = torch.nn.Linear(12, 5)
    head.load_state_dict({"weight": torch.from_numpy(ARRAYS.head[0]), "bias": torch.from_numpy(ARRAYS.head[1])})
    sets = {
        "fit": (features, labels, logits),
        "known": tuple(torch.from_numpy(values) for values in ARRAYS.known),
        "unknown": {name: tuple(map(torch.from_numpy, rows)) for name, rows in ARRAYS.unknown.items()},
    }
    options: dict[str, Any] = {"methods": ["ghost", "react"], "draws": 2, "draw_size": 50}
    theirs = ghost_ray.evaluate(**sets, head=head, **options)
    mine = ghost_ray.evaluate(fit=ARRAYS.fit, known=ARRAYS.known, unknown=ARRAYS.unknown, head=ARRAYS.head, **options)
    assert theirs.summary == mine.summary


def test_half_and_double_precision_are_worked_on_as_single(plain_stores: dict[str, str]) -> None:
    features, labels, logits = ARRAYS.fit
    once = ghost_ray.fit(features.astype(np.float64), labels.astype(np.uint8), logits.astype(np.float64))
    np.testing.assert_array_equal(once.gaussians_.mean, ghost_ray.fit(*ARRAYS.fit).gaussians_.mean)
    half = torch.from_numpy(features).bfloat16()
    by_half = ghost_ray.fit(half, labels, logits)
    np.testing.assert_array_equal(by_half.gaussians_.mean, ghost_ray.fit(half.float(), labels, logits).gaussians_.mean)


def test_predictions_do_for_the_fit_and_the_audit() -> None:
    features, labels, logits = ARRAYS.fit
    by_predictions = ghost_ray.fit(features, labels, predictions=logits.argmax(1))
    np.testing.assert_array_equal(by_predictions.gaussians_.mean, ghost_ray.fit(*ARRAYS.fit).gaussians_.mean)
    found = ghost_ray.audit(features, labels, predictions=logits.argmax(1))
    np.testing.assert_array_equal(found.p_holm, ghost_ray.audit(*ARRAYS.fit).p_holm)


def test_what_is_saved_is_read_by_the_commands(tmp_path: Path, plain_stores: dict[str, str]) -> None:
    model = ghost_ray.fit(*ARRAYS.fit, class_names=[*"abcde"])
    model.threshold(accept_known=0.9, features=ARRAYS.known[0], logits=ARRAYS.known[2])
    model.save(str(tmp_path / "model"))
    result = score.run(
        ScoreConfig(gaussians=str(tmp_path / "model"), store=plain_stores["far"], out=str(tmp_path / "scores.parquet"))
    )
    assert result["threshold"] == model.threshold_
    assert result["rule"] == "accept-known"
    loaded = ghost_ray.Ghost.load(str(tmp_path / "model"))
    assert loaded.threshold_ == model.threshold_
    assert loaded.get_params() == {"model": "imported", "class_names": [*"abcde"]}
    np.testing.assert_array_equal(
        loaded.score(ARRAYS.known[0], ARRAYS.known[2]), model.score(ARRAYS.known[0], ARRAYS.known[2])
    )
    # A model that is loaded and saved again stays one of its network.
    theirs = write_toy_model(tmp_path / "theirs", *ARRAYS.fit[:2], TOY, {"weights_sha256": "a" * 64}).manifest
    ghost_ray.Ghost.load(str(tmp_path / "theirs")).save(str(tmp_path / "again"))
    assert Model.open(str(tmp_path / "again")).manifest.network == theirs.network
    with pytest.raises(ghost_ray.errors.InputError, match="exists already"):
        model.save(str(tmp_path / "model"))
    model.save(str(tmp_path / "model"), overwrite=True)

    found = ghost_ray.audit(*ARRAYS.fit)
    found.save(str(tmp_path / "audit"))
    evaluated = ghost_ray.evaluate(fit=ARRAYS.fit, known=ARRAYS.known, unknown=ARRAYS.unknown, draw_size=100)
    evaluated.save(str(tmp_path / "evaluation"))
    folders = tuple(str(tmp_path / name) for name in ("model", "audit", "evaluation"))
    shown = report(ReportConfig(folders=folders, out=str(tmp_path / "report.html"), plots=False))
    assert [section["kind"] for section in shown["sections"]] == ["audit", "evaluation", "model"]
    assert not shown["unfinished"]
    manifest = json.loads((tmp_path / "evaluation/manifest.json").read_text())
    assert manifest["config"]["out"] == str(tmp_path / "evaluation")
    assert ghost_ray.OpenSetEvaluation.load(str(tmp_path / "evaluation")).summary == evaluated.summary
