"""Fit: the Gaussians of a plain two-pass calculation, the same bytes from any number of workers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.stores import Toy, forget_digests, read_row_file, write_row_file, write_store

from ghost_ray.cluster import ray_session
from ghost_ray.config import FitConfig, RayJobConfig
from ghost_ray.errors import InputError
from ghost_ray.jobs import fit
from ghost_ray.model import Model
from ghost_ray.store import Store


def two_pass(embedding: np.ndarray, label: np.ndarray, pred: np.ndarray, classes: int) -> tuple[np.ndarray, ...]:
    """Mean, std and count of the correctly classified rows of each class, in float64."""
    mean, std = np.zeros((classes, embedding.shape[1])), np.zeros((classes, embedding.shape[1]))
    count = np.zeros(classes, np.int64)
    for k in range(classes):
        rows = embedding[(label == k) & (pred == k)].astype(np.float64)
        count[k] = len(rows)
        if len(rows) >= 2:
            mean[k], std[k] = rows.mean(0), rows.std(0, ddof=1)
    return mean, std, count


def digest(model: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in model.glob("*.safetensors")}


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("layout", ["clustered", "unordered"])
@pytest.mark.parametrize(("offset", "spread"), [(0.0, 1.0), (1e4, 1e-2), (-1e-3, 1e-6)])
def test_equals_a_two_pass_calculation(
    tmp_path: Path, rng: np.random.Generator, layout: str, offset: float, spread: float
) -> None:
    toy = Toy.make(rng, classes=7, dimensions=6)
    label = rng.integers(-1, 7, 500)
    pred = np.where(rng.random(500) < 0.8, np.maximum(label, 0), 3)
    embedding = (offset + spread * rng.normal(size=(500, 6))).astype(np.float32)
    store = write_store(tmp_path / "s", embedding, label, toy, pred=pred, group_rows=20, layout=layout)
    result = fit.run(FitConfig(store=store.uri, out=str(tmp_path / "m")))
    model = Model.open(str(tmp_path / "m"))
    mean, std, count = two_pass(embedding, label, pred, 7)
    assert np.array_equal(model.gaussians.count, count)
    np.testing.assert_allclose(model.gaussians.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(model.gaussians.std, std, rtol=1e-6)
    assert result["rows_used"] == count.sum() == model.manifest.rows
    statistics = model.statistics()
    np.testing.assert_allclose(statistics.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(statistics.m2, std**2 * (count - 1)[:, None], rtol=1e-6)


@pytest.mark.usefixtures("local_ray")
def test_names_what_is_missing_thin_and_constant(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng, classes=4, dimensions=5)
    label = np.repeat([0, 1, 3], [30, 1, 3])
    embedding = rng.normal(size=(34, 5)).astype(np.float32)
    embedding[:, 2] = 7.25
    embedding[label == 3, 0] = 1.5
    names = ["tench", "shark", "ray", "ghost"]
    write_store(tmp_path / "s", embedding, label, toy, pred=label, class_names=names)
    result = fit.run(FitConfig(store=str(tmp_path / "s"), out=str(tmp_path / "m")))
    assert result["missing"] == [{"class": 1, "name": "shark", "n": 1}, {"class": 2, "name": "ray", "n": 0}]
    assert result["thin"] == {"classes": 1, "smallest": [{"class": 3, "name": "ghost", "n": 3}]}
    assert result["constant"] == {"cells": 3, "dimensions_in_every_class": [2]}
    model = Model.open(str(tmp_path / "m"))
    assert not model.gaussians.mean[[1, 2]].any()
    assert not model.gaussians.std[[1, 2]].any()
    assert (model.gaussians.std[:, 2] == 0).all()
    assert (model.manifest.missing_classes, model.manifest.thin_classes) == (2, 1)
    assert model.manifest.constant_dimensions == 3
    assert model.manifest.data[0].fingerprint == Store.open(str(tmp_path / "s")).fingerprint()
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [
        "gaussians.safetensors",
        "manifest.json",
        "statistics.safetensors",
    ]


@pytest.mark.usefixtures("local_ray")
def test_statistics_merge_with_those_of_new_rows(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng, classes=3, dimensions=4)
    embedding, label = toy.known(rng, 300)
    half = rng.random(300) < 0.5
    stores = {
        name: write_store(tmp_path / name, embedding[rows], label[rows], toy)
        for name, rows in (("all", np.ones(300, bool)), ("old", half), ("new", ~half))
    }
    fit.run(FitConfig(store=stores["old"].uri, out=str(tmp_path / "m")))
    statistics = Model.open(str(tmp_path / "m")).statistics()
    statistics.merge(fit.fit_store(stores["new"]))
    whole = fit.fit_store(stores["all"]).finish()
    np.testing.assert_array_max_ulp(statistics.finish().mean, whole.mean, 1)
    np.testing.assert_array_max_ulp(statistics.finish().std, whole.std, 1)


@pytest.mark.usefixtures("local_ray")
def test_the_same_rows_in_other_files_differ_by_an_ulp_at_most(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng, classes=5, dimensions=8)
    embedding, label = toy.known(rng, 800)
    order = rng.permutation(800)
    results = [
        fit.fit_store(write_store(tmp_path / "a", embedding, label, toy)).finish(),
        fit.fit_store(write_store(tmp_path / "b", embedding, label, toy, group_rows=7)).finish(),
        fit.fit_store(
            write_store(tmp_path / "c", embedding[order], label[order], toy, group_rows=30, layout="unordered")
        ).finish(),
    ]
    for other in results[1:]:
        np.testing.assert_array_max_ulp(results[0].mean, other.mean, 1)
        np.testing.assert_array_max_ulp(results[0].std, other.std, 1)


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("correct", [True, False])
def test_a_nan_is_named_also_in_a_misclassified_row(tmp_path: Path, rng: np.random.Generator, correct: bool) -> None:
    toy = Toy.make(rng, classes=3, dimensions=4)
    label = np.repeat([0, 1, 2], 20)
    pred = label.copy()
    embedding = rng.normal(size=(60, 4)).astype(np.float32)
    embedding[33, 1] = np.nan
    pred[33] = 1 if correct else 2
    store = write_store(tmp_path / "s", embedding, label, toy, pred=pred, group_rows=20)
    with pytest.raises(InputError, match=r"rows/part-0000.arrow: row 33 holds a NaN") as refused:
        fit.run(FitConfig(store=store.uri, out=str(tmp_path / "m")))
    assert refused.value.exit_code == 2
    assert not (tmp_path / "m").exists()


@pytest.mark.usefixtures("local_ray")
def test_a_store_with_nothing_to_fit_is_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng)
    write_store(tmp_path / "unknown", toy.unknown(rng, 30), None, toy)
    write_store(tmp_path / "wrong", *toy.known(rng, 30), toy, pred=np.zeros(30, int) + 4)
    write_store(tmp_path / "empty", np.empty((0, toy.dimensions), np.float32), np.empty(0, np.int32), toy)
    for name in ("unknown", "empty"):
        with pytest.raises(InputError, match="no class has two correctly classified rows"):
            fit.run(FitConfig(store=str(tmp_path / name), out=str(tmp_path / "m")))
    features, label = toy.known(rng, 60)
    right = toy.logits(features).argmax(1) == label
    write_store(tmp_path / "shifted", features[right], (label[right] + 1) % toy.classes, toy)
    with pytest.raises(InputError, match=r"no class has two .* would in 100\.0 % with 1 subtracted from each"):
        fit.run(FitConfig(store=str(tmp_path / "shifted"), out=str(tmp_path / "m")))
    result = fit.run(FitConfig(store=str(tmp_path / "wrong"), out=str(tmp_path / "m")))
    assert [entry["class"] for entry in result["missing"]] == [0, 1, 2, 3]


def test_a_missing_part_is_refused_before_any_ray_is_started(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng)
    store = write_store(tmp_path / "s", *toy.known(rng, 100), toy, group_rows=10)
    (tmp_path / "s" / "rows" / store.files[1].name).unlink()
    with pytest.raises(InputError, match=f"{store.files[1].name} is missing"):
        fit.run(FitConfig(store=store.uri, out=str(tmp_path / "m"), address="ray://nowhere"))


def many_shards(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> list[Store]:
    """Stores of which every row group is a task, so that the tree has several levels."""
    toy = Toy.make(rng, classes=40, dimensions=16)
    embedding, label = toy.known(rng, 3000)
    order = rng.permutation(3000)
    monkeypatch.setattr(fit, "_SHARD_PER_ACCUMULATOR", 0)
    monkeypatch.setattr(Store.row_groups, "__defaults__", (1,))
    return [
        write_store(tmp_path / "clustered", embedding, label, toy, group_rows=20),
        write_store(tmp_path / "unordered", embedding[order], label[order], toy, group_rows=20, layout="unordered"),
    ]


@pytest.mark.slow
def test_any_number_of_workers_gives_the_same_bytes(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = many_shards(tmp_path, rng, monkeypatch)
    assert min(len(fit._shards(store)) for store in stores) > 64
    results = []
    for workers in (1, 2, 7):
        with ray_session(RayJobConfig(num_cpus=workers)):
            for store in stores:
                out = tmp_path / f"{Path(store.uri).name}-{workers}"
                fit.run(FitConfig(store=store.uri, out=str(out)))
                results.append(digest(out))
    assert results[0] == results[2] == results[4]
    assert results[1] == results[3] == results[5]


def die_once(shard: list, store: Store) -> object:
    """``fit``'s own task, but the first worker to take it is killed midway."""
    import os
    import signal

    marker = Path(store.uri).parent / "killed"
    result = fit._accumulate(shard, store)
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return result
    os.kill(os.getpid(), signal.SIGKILL)
    return None


@pytest.mark.usefixtures("local_ray")
def test_killing_a_worker_midway_changes_nothing(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = many_shards(tmp_path, rng, monkeypatch)
    fit.run(FitConfig(store=store.uri, out=str(tmp_path / "calm")))
    original = fit.map_merge
    monkeypatch.setattr(fit, "map_merge", lambda function, *rest, **named: original(die_once, *rest, **named))
    fit.run(FitConfig(store=store.uri, out=str(tmp_path / "killed-run")))
    assert (tmp_path / "killed").exists()
    assert digest(tmp_path / "calm") == digest(tmp_path / "killed-run")


@pytest.mark.usefixtures("local_ray")
def test_another_dimension_in_one_file_ends_in_exit_2_naming_it(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    from ghost_ray.cli import main

    toy = Toy.make(rng, dimensions=4)
    store = write_store(tmp_path / "s", *toy.known(rng, 100), toy, group_rows=10)
    forget_digests(store.uri)
    path = tmp_path / "s" / "rows" / store.files[1].name
    table = read_row_file(path)
    wide = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(5 * len(table), np.float32)), 5)
    write_row_file(path, table.set_column(4, "embedding", wide), 10)
    with pytest.raises(SystemExit) as stop:
        main(["fit", store.uri, "--out", str(tmp_path / "m")])
    assert stop.value.code == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"rows/{path.name}: column embedding" in said
    assert "float32 lists of 4" in said


@pytest.mark.usefixtures("local_ray")
def test_the_command_shows_what_a_person_needs(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    from ghost_ray.cli import main

    toy = Toy.make(rng, classes=3, dimensions=5)
    label = np.repeat([0, 1], [20, 3])
    embedding = rng.normal(size=(23, 5)).astype(np.float32)
    write_store(tmp_path / "s", embedding, label, toy, pred=label, class_names=["a", "b", "[c]"])
    for extra in ([], ["--overwrite", "--json"]):
        with pytest.raises(SystemExit) as stop:
            main(["fit", str(tmp_path / "s"), "--out", str(tmp_path / "m"), *extra])
        assert stop.value.code == 0
    shown, _, machine = capsys.readouterr().out.partition("{")
    assert "23 correctly classified of 23 rows" in shown
    assert "2 [c] (n=0)" in shown
    assert "1 b (n=3)" in shown
    assert json.loads("{" + machine)["rows_used"] == 23
