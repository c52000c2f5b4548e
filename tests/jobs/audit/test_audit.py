"""Audit: scipy's tests and statsmodels' correction on every cell, resumed where it was, loud where it must be."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import shapiro
from statsmodels.stats.multitest import multipletests
from support.stores import Toy, forget_digests, read_row_files, write_row_file, write_store

from ghost_ray.config import AuditConfig
from ghost_ray.errors import GateFailed, InputError
from ghost_ray.files.manifest import read_manifest
from ghost_ray.jobs import audit
from ghost_ray.jobs.audit import audit_job
from ghost_ray.jobs.audit.class_tests import RangeTests, Sampling, test_range
from ghost_ray.jobs.audit.verdict import PAPER_RATES
from ghost_ray.store import RowGroups, Store

KINDS = ("normal", "skewed", "bimodal", "constant")


def columns(rng: np.random.Generator, rows: int, kinds: tuple[str, ...] = KINDS) -> np.ndarray:
    """Samples [rows, len(kinds)] with each column of its kind."""
    made = {
        "normal": lambda: rng.normal(size=rows),
        "skewed": lambda: rng.exponential(size=rows),
        "bimodal": lambda: rng.normal(size=rows) * 0.3 + rng.choice([-1.0, 1.0], rows),
        "constant": lambda: np.full(rows, 0.1),
    }
    return np.stack([made[kind]() for kind in kinds], axis=1).astype(np.float32)


def run(store: Store, out: Path, **options: Any) -> dict[str, Any]:
    return audit.run(AuditConfig(store=store.uri, out=str(out), **options))


def cells(out: Path) -> dict[str, np.ndarray]:
    table = pq.read_table(out / "normality.parquet")
    return {name: table.column(name).to_numpy() for name in table.column_names}


@pytest.fixture
def store(tmp_path: Path, rng: np.random.Generator) -> Store:
    """Six classes of 0 to 300 rows, some of them misclassified; four kinds of columns."""
    counts = [300, 2, 80, 0, 3, 150]
    label = np.repeat(np.arange(6), counts)
    pred = np.where(rng.random(len(label)) < 0.9, label, 5 - label)
    pred[(label == 1) | (label == 4)] = label[(label == 1) | (label == 4)]
    toy = Toy.make(rng, classes=6, dimensions=len(KINDS))
    names = ["zero", "one", "two", "three", "four", "five"]
    return write_store(
        tmp_path / "store", columns(rng, len(label)), label, toy, pred=pred, group_rows=20, class_names=names
    )


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every class a range of its own."""
    monkeypatch.setattr(Store.class_ranges, "__defaults__", (1,))


@pytest.mark.usefixtures("local_ray", "small_ranges")
@pytest.mark.parametrize("family", ["all", "class"])
def test_every_cell_is_what_scipy_and_statsmodels_say(tmp_path: Path, store: Store, family: str) -> None:
    summary = run(store, tmp_path / "a", family=family, alpha=0.01)
    found = cells(tmp_path / "a")
    assert found["class"].tolist() == np.repeat(np.arange(6), 4).tolist()
    assert found["dimension"].tolist() == list(range(4)) * 6
    parts = [store.read(groups) for groups in store.row_groups()]
    label, pred = (np.concatenate([getattr(part, name) for part in parts]) for name in ("label", "pred"))
    embedding = np.concatenate([part.embedding for part in parts])
    W, p, degenerate = np.ones(24), np.ones(24), np.ones(24, bool)
    for k in range(6):
        sample = embedding[(label == k) & (pred == k)].astype(np.float64)
        assert (found["n"][found["class"] == k] == len(sample)).all()
        for d in range(4):
            if len(sample) >= 3 and np.ptp(sample[:, d]) > 0:
                W[4 * k + d], p[4 * k + d] = shapiro(sample[:, d])
                degenerate[4 * k + d] = False
    assert np.array_equal(found["degenerate"], degenerate)
    np.testing.assert_allclose(found["W"], W, atol=1e-8)
    np.testing.assert_allclose(found["p"], p, rtol=1e-6, atol=1e-15)
    rejected, holm = np.zeros(24, bool), np.ones(24)
    families = [~degenerate] if family == "all" else [~degenerate & (found["class"] == k) for k in (0, 2, 4, 5)]
    for one in families:
        rejected[one], holm[one] = multipletests(found["p"][one], 0.01, "holm")[:2]
    assert np.array_equal(found["rejected"], rejected)
    np.testing.assert_allclose(found["p_holm"], holm, rtol=1e-12)
    assert summary["tests"] == (~degenerate).sum()
    assert summary["degenerate"] == degenerate.sum()
    assert summary["rejected"] == rejected.sum()
    assert summary["rejected_fraction"] == rejected.sum() / (~degenerate).sum()
    assert (summary["alpha"], summary["family"]) == (0.01, family)
    assert (summary["classes"], summary["dimensions"]) == (6, 4)
    at_alpha = {entry["alpha"]: entry["rejected_fraction"] for entry in summary["by_alpha"]}
    assert at_alpha[0.01] == summary["rejected_fraction"]


@pytest.mark.usefixtures("local_ray")
def test_the_folder_holds_what_is_promised_and_nothing_else(tmp_path: Path, store: Store) -> None:
    result = run(store, tmp_path / "a")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "examples.parquet",
        "manifest.json",
        "normality.parquet",
        "summary.json",
    ]
    assert not (tmp_path / ".a.partial").exists()
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert {**summary, "audit": result["audit"], "store": result["store"]} == result
    manifest = read_manifest(str(tmp_path / "a"), audit.AuditManifest, "AUDIT", "ghost-ray audit")
    assert manifest.rows == summary["rows_tested"]
    assert manifest.data[0].fingerprint == store.fingerprint()
    assert manifest.config["alpha"] == 0.05
    types = {field.name: str(field.type) for field in pq.read_schema(tmp_path / "a" / "normality.parquet")}
    assert types == {
        "class": "int32",
        "dimension": "int32",
        "n": "int32",
        "W": "double",
        "p": "double",
        "p_holm": "double",
        "rejected": "bool",
        "degenerate": "bool",
    }


@pytest.mark.usefixtures("local_ray")
def test_classes_with_too_few_samples_and_the_worst_are_named(tmp_path: Path, store: Store) -> None:
    summary = run(store, tmp_path / "a")
    assert summary["untested_classes"] == [{"class": 1, "name": "one", "n": 2}, {"class": 3, "name": "three", "n": 0}]
    assert summary["thin_classes"] == [{"class": 4, "name": "four", "n": 3}]
    assert {entry["dimension"] for entry in summary["worst_dimensions"][:2]} == {1, 2}
    assert 3 not in {entry["dimension"] for entry in summary["worst_dimensions"]}
    worst = summary["worst_classes"][0]
    assert worst["rejected"] == 2
    assert worst["tests"] == 3
    assert 0 < worst["lowest_W"] < worst["mean_W"] < 1
    assert sum(summary["p_histogram"]["counts"]) == sum(summary["W_histogram"]["counts"]) == summary["tests"]
    assert "DenseNet-121" in summary["verdict"]


@pytest.mark.usefixtures("local_ray")
def test_examples_show_the_samples_themselves(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng, classes=3, dimensions=4)
    label = np.repeat([0, 1, 2], [900, 100, 50])
    embedding = columns(rng, 1050)
    store = write_store(tmp_path / "s", embedding, label, toy, pred=label, group_rows=40)
    run(store, tmp_path / "a")
    examples = pq.read_table(tmp_path / "a" / "examples.parquet").to_pylist()
    worst = [example for example in examples if example["kind"] == "worst"]
    # One a dimension, never the constant one; the largest class shows a departure best.
    assert sorted(example["dimension"] for example in worst) == [0, 1, 2]
    assert {(e["class"], e["dimension"]) for e in worst} >= {(0, 1), (0, 2)}
    assert len([example for example in examples if example["kind"] == "typical"]) == 4
    found = cells(tmp_path / "a")
    for example in examples:
        sample = np.sort(embedding[label == example["class"], example["dimension"]])
        row = 4 * example["class"] + example["dimension"]
        assert (example["n"], example["W"], example["p"]) == (len(sample), found["W"][row], found["p"][row])
        assert example["mean"] == pytest.approx(sample.mean(dtype=np.float64))
        assert example["std"] == pytest.approx(sample.std(dtype=np.float64, ddof=1))
        values = np.array(example["values"], np.float32)
        assert len(values) == min(len(sample), 500)
        assert values[0] == sample[0]
        assert values[-1] == sample[-1]
        assert np.isin(values, sample).all()
        assert (np.diff(values) >= 0).all()


@pytest.mark.usefixtures("local_ray")
def test_normal_columns_are_rejected_family_wise_no_more_often_than_alpha(tmp_path: Path) -> None:
    seeds, alpha = 200, 0.05
    toy = Toy.make(np.random.default_rng(0), classes=seeds, dimensions=10)
    embedding = np.random.default_rng(1).normal(size=(60 * seeds, 10)).astype(np.float32)
    label = np.repeat(np.arange(seeds), 60)
    store = write_store(tmp_path / "s", embedding, label, toy, pred=label)
    run(store, tmp_path / "a", family="class", alpha=alpha)
    found = cells(tmp_path / "a")
    wrong = found["rejected"].reshape(seeds, 10).any(axis=1).sum()
    # Each class is a family of its own: the number of families with a false alarm is binomial, three σ above its mean.
    assert wrong <= alpha * seeds + 3 * np.sqrt(alpha * (1 - alpha) * seeds)


@pytest.mark.usefixtures("local_ray")
def test_skewed_and_bimodal_columns_are_found_and_constant_ones_degenerate(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    kinds = KINDS * 5
    toy = Toy.make(rng, classes=8, dimensions=len(kinds))
    label = np.repeat(np.arange(8), 400)
    store = write_store(tmp_path / "s", columns(rng, 3200, kinds), label, toy, pred=label)
    summary = run(store, tmp_path / "a")
    found = cells(tmp_path / "a")
    kind = np.array(kinds * 8)
    assert found["rejected"][(kind == "skewed") | (kind == "bimodal")].all()
    assert not found["rejected"][kind == "normal"].any()
    assert np.array_equal(found["degenerate"], kind == "constant")
    assert summary["rejected_fraction"] == pytest.approx(2 / 3)


@pytest.mark.usefixtures("local_ray")
def test_an_unordered_store_gives_the_same_audit(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng, classes=4, dimensions=4)
    label = rng.integers(-1, 4, 600)
    embedding = columns(rng, 600)
    pred = np.maximum(label, 0)
    results = []
    for layout in ("clustered", "unordered"):
        store = write_store(tmp_path / layout, embedding, label, toy, pred=pred, group_rows=50, layout=layout)
        run(store, tmp_path / f"{layout}-audit")
        results.append(cells(tmp_path / f"{layout}-audit"))
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])


@pytest.mark.usefixtures("local_ray")
def test_large_classes_are_tested_on_a_sample_that_depends_on_the_keys_alone(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    toy = Toy.make(rng, classes=2, dimensions=4)
    label = np.repeat([0, 1], [400, 60])
    embedding = columns(rng, 460)
    order = rng.permutation(460)
    found = []
    for name, options in (("a", {}), ("b", {}), ("c", {"seed": 1})):
        rows = np.arange(460) if name == "a" else order
        store = write_store(tmp_path / name, embedding, label, toy, pred=label, group_rows=30)
        if name == "b":
            _shuffle_rows(store, rows)
            store = Store.open(store.uri)
        summary = run(store, tmp_path / f"{name}-audit", max_n=100, **options)
        assert summary["sampled_classes"] == [{"class": 0, "name": "0", "n": 100, "available": 400}]
        found.append(cells(tmp_path / f"{name}-audit"))
    assert found[0]["n"].tolist() == [100] * 4 + [60] * 4
    assert np.array_equal(found[0]["W"], found[1]["W"])
    assert not np.array_equal(found[0]["W"][:3], found[2]["W"][:3])
    assert np.array_equal(found[0]["W"][4:], found[2]["W"][4:])


def _shuffle_rows(store: Store, order: np.ndarray) -> None:
    """The same rows in one unordered file of somebody else's making."""
    forget_digests(store.uri)
    table = read_row_files(Path(store.uri) / "rows")
    for file in store.files:
        (Path(store.uri) / "rows" / file.name).unlink()
    write_row_file(Path(store.uri) / "rows" / "all.arrow", table.take(pa.array(order)), 70)
    path = Path(store.uri) / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["files"]
    path.write_text(json.dumps({**manifest, "layout": "unordered"}))


def test_a_sample_is_drawn_evenly() -> None:
    keys = pa.array([f"{i:05d}" for i in range(2000)])
    drawn = np.zeros(2000)
    for seed in range(40):
        chosen = Sampling(500, seed).choose(keys)
        assert len(np.unique(chosen)) == 500
        drawn[chosen] += 1
    assert drawn.mean() == 10
    assert drawn.std() == pytest.approx(np.sqrt(40 * 0.25 * 0.75), rel=0.1)


def stop_after_two(class_range: list[RowGroups], store: Store, sampling: Sampling) -> RangeTests:
    """The audit's own task, but from class 4 on every one fails as a system might."""
    if class_range[0].first_label >= 4:
        raise OSError("the disk is gone")
    return test_range(class_range, store, sampling)


def refuse_tested_classes(class_range: list[RowGroups], store: Store, sampling: Sampling) -> RangeTests:
    """The audit's own task, but it fails on classes that an earlier run has tested."""
    if class_range[0].first_label < 4:
        raise AssertionError(f"class {class_range[0].first_label} is tested again")
    return test_range(class_range, store, sampling)


@pytest.mark.usefixtures("local_ray", "small_ranges")
def test_finished_classes_are_not_tested_again(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(store, tmp_path / "whole", alpha=0.01)
    with monkeypatch.context() as patch:
        patch.setattr(audit_job, "test_range", stop_after_two)
        with pytest.raises(Exception, match="the disk is gone"):
            run(store, tmp_path / "a")
    assert not (tmp_path / "a").exists()
    with monkeypatch.context() as patch:
        patch.setattr(audit_job, "test_range", refuse_tested_classes)
        # Another α corrects the same tests differently; nothing has to be tested again for it.
        run(store, tmp_path / "a", alpha=0.01)
    assert "resuming" in capsys.readouterr().err
    for name in ("normality.parquet", "summary.json", "examples.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.usefixtures("local_ray", "small_ranges")
@pytest.mark.parametrize("change", ["seed", "max_n", "store"])
def test_what_was_tested_otherwise_is_tested_again(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(audit_job, "test_range", stop_after_two)
        with pytest.raises(Exception, match="the disk is gone"):
            run(store, tmp_path / "a")
    options = {} if change == "store" else {change: 50}
    if change == "store":
        forget_digests(store.uri)
    run(store, tmp_path / "whole", **options)
    run(store, tmp_path / "a", **options)
    said = capsys.readouterr().err
    assert "resuming" not in said
    assert f"audit: starting again, because the interrupted run here had other settings ({change})\n" in said
    assert (tmp_path / "a" / "summary.json").read_bytes() == (tmp_path / "whole" / "summary.json").read_bytes()


def die_once(class_range: list[RowGroups], store: Store, sampling: Sampling) -> RangeTests:
    """The audit's own task, but the first worker to take class 2 is killed midway."""
    found = test_range(class_range, store, sampling)
    marker = Path(store.uri).parent / "killed"
    if class_range[0].first_label >= 2 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return found


@pytest.mark.usefixtures("local_ray", "small_ranges")
def test_killing_a_worker_midway_changes_nothing(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run(store, tmp_path / "calm")
    monkeypatch.setattr(audit_job, "test_range", die_once)
    run(store, tmp_path / "a")
    assert (tmp_path / "killed").exists()
    for name in ("normality.parquet", "summary.json", "examples.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()


@pytest.mark.usefixtures("local_ray")
def test_the_gate_says_no_after_publishing(tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    from ghost_ray.cli import main

    with pytest.raises(GateFailed, match=r"more than `fail_above=0\.1`"):
        run(store, tmp_path / "a", fail_above=0.1)
    assert (tmp_path / "a" / "manifest.json").exists()
    with pytest.raises(SystemExit) as stop:
        main(["audit", store.uri, "--out", str(tmp_path / "b"), "--fail-above", "0.1", "--json"])
    assert stop.value.code == 1
    answer = capsys.readouterr()
    assert json.loads(answer.out)["rejected_fraction"] > 0.1
    assert "more than --fail-above 0.1" in answer.err.splitlines()[-1]
    with pytest.raises(SystemExit) as stop:
        main(["audit", store.uri, "--out", str(tmp_path / "c"), "--fail-above", "0.99"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "Too few samples to test: 1 one (n=2), 3 three (n=0)" in shown
    assert all(f"{100 * rate:.2f} %" in shown for rate in PAPER_RATES.values())
    assert "neither n, nor the split, nor the family" in " ".join(shown.split())


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("layout", ["clustered", "unordered"])
@pytest.mark.parametrize("correct", [True, False])
def test_a_nan_ends_in_exit_2_naming_file_and_row(
    tmp_path: Path, rng: np.random.Generator, layout: str, correct: bool
) -> None:
    toy = Toy.make(rng, classes=3, dimensions=4)
    label = np.repeat([0, 1, 2], 40)
    pred = label.copy()
    embedding = columns(rng, 120)
    embedding[77, 2] = np.nan
    pred[77] = 1 if correct else 0
    store = write_store(tmp_path / "s", embedding, label, toy, pred=pred, layout=layout)
    with pytest.raises(InputError, match=r"rows/part-0000.arrow: row 77 holds a NaN") as refused:
        run(store, tmp_path / "a")
    assert str(tmp_path / "s") in str(refused.value)
    assert refused.value.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.usefixtures("local_ray")
def test_a_store_with_nothing_to_test_is_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng)
    unknown = write_store(tmp_path / "unknown", toy.unknown(rng, 30), None, toy)
    with pytest.raises(InputError, match="no labelled row"):
        run(unknown, tmp_path / "a")
    embedding = np.ones((30, toy.dimensions), np.float32)
    constant = write_store(tmp_path / "constant", embedding, np.repeat(np.arange(5), 6), toy, pred=np.zeros(30, int))
    with pytest.raises(InputError, match="nothing can be tested"):
        run(constant, tmp_path / "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["constant", "unknown"]
