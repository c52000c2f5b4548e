"""The evaluate job against numpy, scikit-learn and one process; its files and its determinism."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import logsumexp, softmax
from sklearn.metrics import roc_auc_score
from support.evaluations import make_toy, one, rows_of, settings, write_stores
from support.stores import Toy, write_store

from ghost_ray import report, scorers
from ghost_ray.config import ReportConfig
from ghost_ray.gaussians import distance, z_sum
from ghost_ray.jobs.evaluate import run
from ghost_ray.jobs.evaluate.batches import BatchReader
from ghost_ray.jobs.evaluate.result_tables import grids, to_latex, to_markdown
from ghost_ray.jobs.evaluate.scoring import _score_groups, score_file
from ghost_ray.store import Store

FIELDS = {"auroc", "auoscr", "fpr95", "openood_fpr95", "f_at_c95", "ccr_mean", "ccr_std", "ccr_cv"}
FILES = {
    "metrics.json",
    "significance.json",
    "curves.parquet",
    "per_class.parquet",
    "zscores.parquet",
    "example.json",
    "table.md",
    "table.tex",
    "manifest.json",
    "openood",
    "scores",
}


@pytest.fixture(scope="module")
def toy() -> Toy:
    return make_toy()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, toy: Toy) -> Path:
    place = tmp_path_factory.mktemp("stores")
    write_stores(place, toy)
    return place


@pytest.fixture(scope="module")
def everything(place: Path, tmp_path_factory: pytest.TempPathFactory, local_ray: None) -> tuple[dict[str, Any], Path]:
    """One run of all methods, looked at by many tests."""
    out = tmp_path_factory.mktemp("evaluation") / "eval"
    return run(settings(place, out, methods="all", group={"both": "near,far"})), out


def brute_auoscr(known: np.ndarray, correct: np.ndarray, unknown: np.ndarray) -> float:
    thresholds = np.unique(np.concatenate([known, unknown]))[::-1]
    ccr = [0.0, *((correct & (known >= t)).mean() for t in thresholds)]
    fpr = [0.0, *((unknown >= t).mean() for t in thresholds)]
    return float(np.trapezoid(ccr, fpr))


def test_output_is_exactly_the_promised_files(everything: tuple[dict[str, Any], Path]) -> None:
    result, out = everything
    assert set(os.listdir(out)) == FILES
    expected = {f"{m}__{s}.parquet" for m in scorers.names() for s in ("known", "near", "far")}
    assert set(os.listdir(out / "scores")) == expected
    assert set(os.listdir(out / "openood")) == {f"{method}.csv" for method in scorers.names()}
    metrics = json.loads((out / "metrics.json").read_text())
    assert {k: v for k, v in result.items() if k != "evaluation"} == metrics
    assert [(r["method"], r["unknown"]) for r in metrics["results"]] == [
        (m, u) for u in ("near", "far") for m in scorers.names()
    ]
    assert all(set(r) >= FIELDS for r in metrics["results"])
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["kind"] == "evaluation"
    assert manifest["sets"] == {"known": 400, "near": 300, "far": 200}


def test_simple_methods_equal_plain_numpy(everything: tuple[dict[str, Any], Path], place: Path, toy: Toy) -> None:
    result, _ = everything
    fit, known = rows_of(place, "fit"), rows_of(place, "known")
    correct = fit["label"] == fit["pred"]
    groups = [fit["embedding"][correct & (fit["label"] == k)].astype(np.float64) for k in range(toy.classes)]
    mean, std = np.stack([g.mean(0) for g in groups]), np.stack([g.std(0, ddof=1) for g in groups])

    def ghost(rows: dict[str, np.ndarray]) -> np.ndarray:
        s = (np.abs(rows["embedding"] - mean[rows["pred"]]) / std[rows["pred"]]).sum(1)
        return toy.logits(rows["embedding"]).max(1) / s

    plain = {
        "ghost": ghost,
        "msp": lambda rows: softmax(toy.logits(rows["embedding"]).astype(np.float64), axis=1).max(1),
        "maxlogit": lambda rows: toy.logits(rows["embedding"]).max(1),
        "energy": lambda rows: logsumexp(toy.logits(rows["embedding"]).astype(np.float64), axis=1),
    }
    right = known["label"] == known["pred"]
    assert result["closed_set_accuracy"] == right.mean()
    for method, score in plain.items():
        for name in ("near", "far"):
            k, u = score(known), score(rows_of(place, name))
            found = one(result, method, name)
            auroc = roc_auc_score(np.repeat([1, 0], [len(k), len(u)]), np.concatenate([k, u]))
            assert found["auroc"] == pytest.approx(auroc, abs=1e-4)
            assert found["auoscr"] == pytest.approx(brute_auoscr(k, right, u), abs=1e-4)
            threshold = np.sort(k)[::-1][int(np.ceil(0.95 * len(k))) - 1]
            assert found["fpr95"] == pytest.approx((u >= threshold).mean(), abs=0.01)


@pytest.mark.parametrize("method", scorers.names())
def test_streamed_fit_equals_fit_in_one_process(
    everything: tuple[dict[str, Any], Path], place: Path, method: str
) -> None:
    reader = BatchReader.of(Store.open(str(place / "fit")), "fit")
    scorer = scorers.create(method)
    scorer.fit(lambda: (reader.read(groups)[0] for groups in reader.store.row_groups()), reader.head)
    for name in ("known", "near"):
        tested = BatchReader.of(Store.open(str(place / name)), "known")
        batches = [tested.read(groups) for groups in tested.store.row_groups()]
        table = pq.read_table(everything[1] / "scores" / f"{method}__{name}.parquet")
        np.testing.assert_allclose(
            table["score"].to_numpy(), np.concatenate([scorer.score(batch) for batch, _ in batches]), rtol=1e-9
        )
        assert table["key"].to_pylist() == [key for _, keys in batches for key in keys.to_pylist()]


def test_ghost_its_variant_and_the_histograms_share_one_reading_of_the_distances(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = BatchReader.of(Store.open(str(place / "fit")), "fit")
    groups = reader.store.row_groups()[0]
    rows, _ = reader.read(groups)
    methods = {name: scorers.create(name).fit(lambda: [rows]) for name in ("ghost", "ghost-gpd")}
    alone = {name: scorer.score(rows) for name, scorer in methods.items()}
    asked: list[int] = []
    monkeypatch.setattr(distance, "z_sum", lambda *given: asked.append(len(given[0])) or z_sum(*given))
    part = _score_groups(groups, methods, methods["ghost"].gaussians_, reader)
    assert asked == [len(rows)]
    for name, scores in alone.items():
        assert part.scores[name].tobytes() == scores.tobytes()
    assert part.z_sum.tobytes() == z_sum(rows.embedding, rows.pred, *gaussian_arrays(methods["ghost"])).tobytes()


def gaussian_arrays(ghost: Any) -> tuple[np.ndarray, np.ndarray]:
    return ghost.gaussians_.mean, ghost.gaussians_.inverse_std


def test_what_a_method_warns_of_reaches_the_results(everything: tuple[dict[str, Any], Path]) -> None:
    assert sum("scale is made for features ≥ 0" in note for note in everything[0]["notes"]) == 1


def test_groups_are_plain_means(everything: tuple[dict[str, Any], Path]) -> None:
    result, _ = everything
    assert len(result["groups"]) == len(scorers.names())
    for group in result["groups"]:
        members = [one(result, group["method"], name) for name in ("near", "far")]
        for field in FIELDS:
            assert group[field] == pytest.approx(np.mean([m[field] for m in members]))


def test_curves_carry_the_areas(everything: tuple[dict[str, Any], Path]) -> None:
    result, out = everything
    curves = pq.read_table(out / "curves.parquet").to_pandas()
    assert set(curves["curve"]) == {"oscr", "roc", "v", "oscr_top", "oscr_bottom"}
    assert curves.groupby(["method", "unknown", "curve"]).size().max() <= 500
    for (method, unknown, curve), points in curves.groupby(["method", "unknown", "curve"]):
        found = one(result, method, unknown)
        if curve == "v":
            at_ten = points.loc[np.isclose(points["x"], 0.1), "y"].iloc[0]
            assert at_ten == pytest.approx(found["ccr_cv"])
            continue
        area = np.trapezoid(points["y"], points["x"])
        field = {
            "oscr": "auoscr",
            "roc": "auroc",
            "oscr_top": "auoscr_top_classes",
            "oscr_bottom": "auoscr_bottom_classes",
        }
        assert area == pytest.approx(found[field[curve]], abs=5e-5)


def test_per_class_adds_up(everything: tuple[dict[str, Any], Path], place: Path) -> None:
    result, out = everything
    table = pq.read_table(out / "per_class.parquet").to_pandas()
    assert list(table) == ["method", "unknown", "class", "name", "n", "accuracy", "ccr", "f_at_c95"]
    known = rows_of(place, "known")
    for (method, unknown), rows in table.groupby(["method", "unknown"]):
        found = one(result, method, unknown)
        np.testing.assert_array_equal(rows["n"], np.bincount(known["label"]))
        assert np.average(rows["accuracy"], weights=rows["n"]) == pytest.approx(result["closed_set_accuracy"])
        assert rows["ccr"].mean() == pytest.approx(found["ccr_mean"])
        assert rows["name"].tolist() == [f"class {k}" for k in rows["class"]]


def test_histograms_count_every_sample(everything: tuple[dict[str, Any], Path]) -> None:
    table = pq.read_table(everything[1] / "zscores.parquet").to_pandas()
    assert table.groupby("set")["count"].sum().to_dict() == {"known": 400, "near": 300, "far": 200}
    edges = [tuple(zip(rows["left"], rows["right"], strict=True)) for _, rows in table.groupby("set")]
    assert edges[0] == edges[1] == edges[2]
    assert all(left < right for left, right in edges[0])


def test_example_is_one_class_seen_closely(everything: tuple[dict[str, Any], Path], place: Path, toy: Toy) -> None:
    content = json.loads((everything[1] / "example.json").read_text())
    k, dimensions = content["class"], content["dimensions"]
    assert content["name"] == f"class {k}"
    assert content["mean"] == sorted(content["mean"])
    for kind in ("known", "unknown"):
        sample = content[kind]
        rows = rows_of(place, sample["set"])
        at = int(np.flatnonzero(rows["key"] == sample["key"])[0])
        assert rows["pred"][at] == k
        assert (rows["label"][at] == k) == (kind == "known")
        z = np.abs(rows["embedding"][at][dimensions] - content["mean"]) / content["std"]
        np.testing.assert_allclose(sample["z"], z, rtol=1e-5)
        assert sample["gamma"] == pytest.approx(sample["logit"] / sample["s"])
        assert sample["s"] == pytest.approx(sum(sample["z"]), rel=1e-5)  # all 12 dimensions are shown


def test_significance_names_every_rival_metric_and_set(everything: tuple[dict[str, Any], Path]) -> None:
    content = json.loads((everything[1] / "significance.json").read_text())
    assert (content["reference"], content["draws"], content["draw_size"]) == ("ghost", 10, 100)
    assert content["drawn"] == {"known": 100, "near": 100, "far": 100}
    assert content["notes"] == []
    named = {(t["unknown"], t["method"], t["metric"]) for t in content["tests"]}
    rivals = [m for m in scorers.names() if m != "ghost"]
    assert named == {(u, m, q) for u in ("near", "far") for m in rivals for q in ("auroc", "auoscr", "fpr95")}
    assert all(0 <= t["p"] <= t["p_bonferroni"] <= 1 for t in content["tests"])
    for values in content["values"]:
        assert len(values["values"]) == content["draws"]
        assert values["mean"] == np.mean(values["values"])
        assert values["std"] == np.std(values["values"], ddof=1)
    means = {(v["unknown"], v["method"], v["metric"]): v["mean"] for v in content["values"]}
    for test in content["tests"]:
        assert test["mean"] == means[test["unknown"], test["method"], test["metric"]]
        assert test["reference_mean"] == means[test["unknown"], "ghost", test["metric"]]


def test_tables_bold_the_best(everything: tuple[dict[str, Any], Path]) -> None:
    result, out = everything
    best = max((r for r in result["results"] if r["unknown"] == "near"), key=lambda r: r["auroc"])
    markdown, latex = to_markdown(result), to_latex(result)
    assert markdown == (out / "table.md").read_text()
    assert latex == (out / "table.tex").read_text()
    assert f"**{best['auroc']:.3f}**" in markdown
    assert rf"\textbf{{{best['auroc']:.3f}}}" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 3
    few = result | {"methods": ["ghost", "msp"]}
    assert [(g.columns, g.rows) for g in grids(few)] == [(["GHOST", "MSP"], ["near", "far", "both (mean)"])] * 3


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_same_bytes_for_any_number_of_workers(
    everything: tuple[dict[str, Any], Path], place: Path, tmp_path: Path, workers: int
) -> None:
    command = [sys.executable, "-m", "ghost_ray", "evaluate", "--num-cpus", str(workers), "--out", str(tmp_path / "e")]
    command += ["--fit", str(place / "fit"), "--known", str(place / "known"), "--methods", "all"]
    command += ["--unknown", f"near={place / 'near'}", "--unknown", f"far={place / 'far'}"]
    command += ["--group", "both=near,far", "--draw-size", "100", *(["--json"] if workers > 1 else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = [path.relative_to(everything[1]) for path in everything[1].rglob("*") if path.is_file()]
    for name in sorted(set(files) - {Path("manifest.json")}):
        assert (tmp_path / "e" / name).read_bytes() == (everything[1] / name).read_bytes(), name
    if workers > 1:
        assert json.loads(done.stdout) == everything[0] | {"evaluation": str(tmp_path / "e")}
    else:
        assert "Closed-set accuracy" in done.stdout


def test_unordered_store_and_stored_logits_give_the_same(
    everything: tuple[dict[str, Any], Path], place: Path, toy: Toy, tmp_path: Path
) -> None:
    rows = rows_of(place, "fit")
    order = np.random.default_rng(2).permutation(len(rows["label"]))
    write_store(
        tmp_path / "shuffled",
        rows["embedding"][order],
        rows["label"][order],
        toy,
        layout="unordered",
        stored_logits=True,
        group_rows=50,
    )
    methods = ["ghost", "ghost-gpd", "ghost-full", "knn", "openmax"]
    result = run(settings(place, tmp_path / "e", fit=str(tmp_path / "shuffled"), methods=methods))
    for method in methods:
        assert one(result, method, "near")["auroc"] == pytest.approx(
            one(everything[0], method, "near")["auroc"], abs=2e-4
        )
    assert not (tmp_path / "e" / "scratch").exists()


def test_negative_top_logits_are_counted_and_said(
    everything: tuple[dict[str, Any], Path], place: Path, toy: Toy, tmp_path: Path
) -> None:
    expected = {
        name: int((toy.logits(rows_of(place, name)["embedding"]).max(1) < 0).sum()) for name in ("known", "near", "far")
    }
    assert expected["near"] > 0
    result = everything[0]
    assert result["negative_top_logits"] == expected
    (note,) = [note for note in result["notes"] if "top logit is negative" in note]
    rows = {"known": result["knowns"], **result["unknowns"]}
    for name, count in expected.items():
        assert (f"{count} of {rows[name]} rows of {name}" in note) == (count > 0)
    rivals = run(settings(place, tmp_path / "e", methods=["msp", "maxlogit"]))
    assert rivals["negative_top_logits"] == expected
    assert not any("negative" in note for note in rivals["notes"])
    logits_above_zero = dataclasses.replace(toy, bias=toy.bias + 1000)
    for name in ("fit", "known", "near", "far"):
        rows = rows_of(place, name)
        write_store(tmp_path / name, rows["embedding"], rows["label"], logits_above_zero)
    calm = run(settings(tmp_path, tmp_path / "calm", methods=["ghost"]))
    assert set(calm["negative_top_logits"].values()) == {0}
    assert not any("negative" in note for note in calm["notes"])


def test_class_without_gaussian_is_named_and_scored_as_unknown(place: Path, toy: Toy, tmp_path: Path) -> None:
    rows = rows_of(place, "fit")
    kept = rows["label"] != 2
    write_store(tmp_path / "fit", rows["embedding"][kept], rows["label"][kept], toy)
    options = {"fit": str(tmp_path / "fit"), "methods": ["ghost", "ghost-full"], "draw_size": 350}
    result = run(settings(place, tmp_path / "e", **options))
    assert [note.split(":")[0] for note in result["notes"] if "(2)" in note] == ["ghost", "ghost-full"]
    table = pq.read_table(tmp_path / "e" / "scores" / "ghost__known.parquet")
    np.testing.assert_array_equal(np.isneginf(table["score"].to_numpy()), table["pred"].to_numpy() == 2)
    json.dumps(result, allow_nan=False)
    significance = json.loads((tmp_path / "e" / "significance.json").read_text())
    assert significance["drawn"] == {"known": 350, "near": 150, "far": 100}
    assert [note.split(";")[0] for note in significance["notes"]] == [
        "significance: each draw takes 350 of the 400 knowns",
        "significance: each draw takes half of the 300 unknowns of near",
        "significance: each draw takes half of the 200 unknowns of far",
    ]
    assert set(significance["notes"]) <= set(result["notes"])


@pytest.mark.slow
def test_pytorch_ood_runs_beside_ours(place: Path, tmp_path: Path, local_ray: None) -> None:
    result = run(settings(place, tmp_path / "e", methods=["maxlogit", "pytorch-ood:MaxLogit"]))
    ours, theirs = one(result, "maxlogit", "near"), one(result, "pytorch-ood:MaxLogit", "near")
    assert {f: ours[f] for f in FIELDS} == pytest.approx({f: theirs[f] for f in FIELDS})
    assert (tmp_path / "e" / "scores" / "pytorch-ood-MaxLogit__far.parquet").exists()
    assert not (tmp_path / "e" / "zscores.parquet").exists()
    assert json.loads((tmp_path / "e" / "significance.json").read_text())["tests"] == []


def test_simulated_network_gives_the_areas_computed_by_hand(tmp_path: Path, local_ray: None) -> None:
    """Two classes at ±c on one axis; unknowns on the boundary between them, or beside a class on a second axis.

    With logits ±(a · x₀), the top logit of knowns is a · |x₀|, x₀ ~ N(±c, 1), and of boundary unknowns x₀ ~ N(0, 1):
    the AUROC of maxlogit follows from two folded normal distributions. Unknowns moved by δ along x₁ keep their
    logits, so that maxlogit cannot tell them (½), while GHOST, which looks at all dimensions, can.
    """
    from scipy import integrate, stats

    c, delta, rows = 2.5, 6.0, 4000
    rng = np.random.default_rng(0)
    weight = np.array([[-1, 0, 0], [1, 0, 0]], np.float32)
    toy = Toy(c * weight.astype(np.float64), weight, np.zeros(2, np.float32))
    boundary = rng.normal(size=(rows, 3)).astype(np.float32)
    beside = toy.known(rng, rows)[0] + np.array([0, delta, 0], np.float32)
    for name, (embedding, label) in {"fit": toy.known(rng, rows), "known": toy.known(rng, rows)}.items():
        write_store(tmp_path / name, embedding, label, toy)
    for name, embedding in {"boundary": boundary, "beside": beside}.items():
        write_store(tmp_path / name, embedding, None, toy)
    unknown = {name: str(tmp_path / name) for name in ("boundary", "beside")}
    result = run(settings(tmp_path, tmp_path / "e", unknown=unknown, methods=["ghost", "maxlogit", "msp", "energy"]))

    known, half = stats.foldnorm(c), stats.halfnorm
    expected, _ = integrate.quad(lambda x: known.pdf(x) * half.cdf(x), 0, 20)
    for method in ("maxlogit", "msp", "energy"):
        assert one(result, method, "boundary")["auroc"] == pytest.approx(expected, abs=0.01)
        assert one(result, method, "beside")["auroc"] == pytest.approx(0.5, abs=0.02)
    assert one(result, "ghost", "beside")["auroc"] > 0.9
    assert result["closed_set_accuracy"] == pytest.approx(stats.norm.cdf(c), abs=0.01)


def test_a_head_with_classes_that_the_data_lacks_is_noted_with_what_to_do(tmp_path: Path, toy: Toy) -> None:
    rng = np.random.default_rng(5)
    embedding, label = toy.known(rng, 600)
    few = label < 4  # of six classes
    write_store(tmp_path / "fit", embedding[few], label[few], toy)
    embedding, label = toy.known(rng, 300)
    # One known in ten is taken for a class that is not there.
    chosen = (label < 4) | (np.arange(300) % 5 == 0)
    label = np.where(label < 4, label, 0)
    write_store(tmp_path / "known", embedding[chosen], label[chosen], toy)
    write_store(tmp_path / "near", toy.unknown(rng, 100, 1.5), None, toy)
    write_store(tmp_path / "far", toy.unknown(rng, 100, 3.0), None, toy)
    result = run(settings(tmp_path, tmp_path / "e", methods=("ghost", "msp"), draws=2))
    (note,) = [note for note in result["notes"] if "knowns are predicted as one of 2 classes" in note]
    assert "--restrict" in note
    assert "FPR95 is then 1 on any unknown set and means nothing" in note
    assert one(result, "ghost", "near")["fpr95"] == 1


def test_scores_of_names_with_underscores_have_files_of_their_own(place: Path, tmp_path: Path) -> None:
    given = [("msp", "a__b"), ("msp__a", "b"), ("msp_", "a"), ("msp", "_a"), ("msp", "a"), ("msp", "a%5F_b")]
    assert len({score_file(method, name) for method, name in given}) == len(given)
    assert score_file("knn:k=10", "near_ood") == "knn-k=10__near_ood.parquet"
    sets = {name: str(place / "near") for name in ("a__b", "a_")}
    run(settings(place, tmp_path / "e", unknown=sets, methods=("ghost", "msp"), draws=2))
    assert len(list((tmp_path / "e" / "scores").iterdir())) == 6
    shown = report.run(ReportConfig(folders=(str(tmp_path / "e"),), plots=False))
    assert shown["unfinished"] == []
