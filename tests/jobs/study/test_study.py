"""A study of stores: every cell is that of `evaluate` alone, and only what is missing is computed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy import stats
from support import latex
from support.studies import settings, stores_of, write_network

from ghost_ray import metrics, report
from ghost_ray.config import EvaluateConfig, ReportConfig
from ghost_ray.errors import GateFailed, InputError
from ghost_ray.files.manifest import RESULT_VERSIONS
from ghost_ray.jobs import evaluate
from ghost_ray.jobs.study import run
from ghost_ray.registry.locks import Busy, hold

TESTED = ("auroc", "auoscr", "fpr95")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of three networks, and a study of two of them."""
    folder = tmp_path_factory.mktemp("world")
    for seed, name in enumerate(("alpha", "mae-h", "gamma")):
        write_network(folder / name, name, seed)
    run(settings(folder, {name: stores_of(folder / name) for name in ("alpha", "mae-h")}))
    return folder


def _table(folder: Path) -> pd.DataFrame:
    return pq.read_table(folder / "study" / "results.parquet").to_pandas()


def _jobs(said: str) -> list[str]:
    """What a study did, from its log."""
    return [line.removeprefix("study: ") for line in said.splitlines() if line.startswith("study: ")]


def _evaluated_alone(world: Path, out: Path, network: str, methods: tuple[str, ...], sets: tuple[str, ...]) -> Any:
    stores = stores_of(world / network, sets)["stores"]
    return evaluate.run(EvaluateConfig(**stores, methods=methods, draws=4, draw_size=100, out=str(out)))


def test_every_cell_is_that_of_evaluate_alone(world: Path, tmp_path: Path) -> None:
    found = _table(world).set_index(["network", "unknown", "method", "metric"])
    counted = 0
    for network in ("alpha", "mae-h"):
        for unknown in ("near", "far"):
            out = tmp_path / f"{network}-{unknown}"
            alone = _evaluated_alone(world, out, network, ("ghost", "msp", "maxlogit"), (unknown,))
            drawn = json.loads((out / "significance.json").read_text())["values"]
            std = {(v["method"], v["metric"]): v["std"] for v in drawn}
            for result in alone["results"]:
                for metric in metrics.registered():
                    cell = found.loc[network, unknown, result["method"], metric.field]
                    expected = metric.read(result)
                    assert cell["value"] == expected or (expected is None and np.isnan(cell["value"]))
                    deviation = std.get((result["method"], metric.field))
                    assert cell["std"] == deviation or (deviation is None and np.isnan(cell["std"]))
                    counted += 1
    assert counted == len(found)


def test_tables_and_tests_are_what_pandas_and_scipy_say(world: Path) -> None:
    """Means, standard deviations and pooled tests, worked out again from the scores of each evaluation."""
    content = json.loads((world / "study" / "results.json").read_text())
    rows = []
    for network in ("alpha", "mae-h"):
        drawn = json.loads((world / "study" / network / "evaluation" / "significance.json").read_text())["values"]
        rows += [
            {"network": network, **{k: v[k] for k in ("unknown", "method", "metric")}, "draw": i, "value": value}
            for v in drawn
            for i, value in enumerate(v["values"])
        ]
    draws = pd.DataFrame(rows)
    table = _table(world)
    std = draws.groupby(["network", "unknown", "method", "metric"])["value"].std(ddof=1)
    drawn = table[table.metric.isin(TESTED)].set_index(std.index.names)["std"]
    pd.testing.assert_series_equal(drawn.sort_index(), std.sort_index(), check_names=False)
    assert table[~table.metric.isin(TESTED)]["std"].isna().all()

    means = pd.DataFrame(content["group_means"]).set_index(["network", "method", "metric"])["value"]
    expected = table.groupby(["network", "method", "metric"])["value"].mean()
    for place, value in means.items():
        assert value == pytest.approx(expected[place], nan_ok=True) or value is None

    for over, source, paired in (("sets", table, "unknown"), ("draws", draws, ["unknown", "draw"])):
        keys = ["network", *([paired] if isinstance(paired, str) else paired)]
        for scope in (None, "alpha", "mae-h"):
            chosen = source if scope is None else source[source.network == scope]
            for metric in TESTED:
                wide = chosen[chosen.metric == metric].pivot_table(index=keys, columns="method", values="value")
                p = {m: stats.ttest_rel(wide[m], wide["ghost"]).pvalue for m in ("msp", "maxlogit")}
                for method, value in p.items():
                    test = next(
                        t
                        for t in content["pooled"]
                        if (t["network"], t["over"], t["method"], t["metric"]) == (scope, over, method, metric)
                    )
                    assert test["pairs"] == len(wide)
                    assert test["p"] == pytest.approx(value)
                    assert test["difference"] == pytest.approx((wide[method] - wide["ghost"]).mean())
                    assert test["p_bonferroni"] == pytest.approx(min(1, 2 * value))

    overall = latex.tabulars((world / "study" / "tables" / "overall.tex").read_text())[0]
    value = table.set_index(["network", "unknown", "method", "metric"])["value"]
    shown = [latex.plain(cell).replace("*", "") for cell in overall.rows[3]]
    columns = [(network, method) for network in ("alpha", "mae-h") for method in ("ghost", "msp", "maxlogit")]
    cells = [" ".join(f"{value[n, 'near', m, q]:.2f}" for q in ("auoscr", "auroc", "fpr95")) for n, m in columns]
    assert shown == ["near", *cells]
    for file in (world / "study" / "tables").glob("*.tex"):
        assert latex.tabulars(file.read_text())


def test_what_is_done_is_not_done_again(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = {name: stores_of(world / name) for name in ("alpha", "mae-h")}
    before = {file: file.read_bytes() for file in (world / "study").rglob("*") if file.is_file()}
    run(settings(world, two))
    assert _jobs(capsys.readouterr().err) == []
    changed = {file.name for file, content in before.items() if file.read_bytes() != content}
    assert changed <= {"manifest.json", "report.html"}  # both say when they were made


def test_a_network_a_set_and_a_method_more_compute_only_that(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = {"out": str(tmp_path / "study")}
    two = {name: stores_of(world / name) for name in ("alpha", "mae-h")}
    run(settings(world, two, **out))
    capsys.readouterr()
    run(settings(world, {**two, "gamma": stores_of(world / "gamma")}, **out))
    said = _jobs(capsys.readouterr().err)
    assert said == ["gamma: fit", "gamma: audit", "gamma: evaluate ghost, msp, maxlogit on near, far"]

    run(settings(world, two, methods=["ghost", "msp", "maxlogit", "energy"], **out))
    assert _jobs(capsys.readouterr().err) == [f"{name}: evaluate energy on near, far" for name in two]

    sets = ("near", "far", "third")
    three = {name: stores_of(world / name, sets) for name in two}
    run(settings(world, three, methods=["ghost", "msp", "maxlogit", "energy"], **out))
    said = _jobs(capsys.readouterr().err)
    assert said == [f"{name}: evaluate ghost, msp, maxlogit, energy on third" for name in two]
    found = pq.read_table(tmp_path / "study" / "results.parquet").to_pandas()
    whole = _evaluated_alone(world, tmp_path / "alone", "alpha", ("ghost", "msp", "maxlogit", "energy"), sets)
    for result in whole["results"]:
        place = (found.network == "alpha") & (found.unknown == result["unknown"]) & (found.method == result["method"])
        assert found[place & (found.metric == "auoscr")]["value"].item() == result["auoscr"]
    tests = json.loads((tmp_path / "study" / "results.json").read_text())["tests"]
    alone = json.loads((tmp_path / "alone" / "significance.json").read_text())["tests"]
    mine = [{k: v for k, v in test.items() if k != "network"} for test in tests if test["network"] == "alpha"]
    assert sorted(mine, key=str) == sorted(alone, key=str)


def test_a_store_that_changed_is_evaluated_again(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_network(tmp_path / "alpha", "alpha", 0)
    one = {"alpha": stores_of(tmp_path / "alpha")}
    run(settings(tmp_path, one))
    capsys.readouterr()
    write_network(tmp_path / "new", "alpha", 7)
    one["alpha"]["stores"]["known"] = str(tmp_path / "new" / "known")
    run(settings(tmp_path, one))
    assert _jobs(capsys.readouterr().err) == ["alpha: evaluate ghost, msp, maxlogit on near, far"]
    one["alpha"] = stores_of(tmp_path / "new")
    run(settings(tmp_path, one))
    assert len(_jobs(capsys.readouterr().err)) == 3
    assert [folder.name for folder in (tmp_path / "study" / "alpha").glob("evaluation*")] == ["evaluation"]


@pytest.mark.parametrize(("kind", "stage"), [("model", "fit"), ("audit", "audit"), ("evaluation", "evaluate")])
def test_results_of_older_code_are_made_again_and_no_others(
    world: Path,
    tmp_path: Path,
    kind: str,
    stage: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(world / "study", tmp_path / "study")
    config = settings(
        world, {name: stores_of(world / name) for name in ("alpha", "mae-h")}, out=str(tmp_path / "study")
    )
    run(config)
    assert _jobs(capsys.readouterr().err) == []
    now = RESULT_VERSIONS[kind]
    monkeypatch.setitem(RESULT_VERSIONS, kind, now + 1)
    run(config)
    assert [job.split()[1] for job in _jobs(capsys.readouterr().err)] == [stage, stage]
    run(config)
    assert _jobs(capsys.readouterr().err) == []
    monkeypatch.setitem(RESULT_VERSIONS, kind, now)
    run(config)
    assert [job.split()[1] for job in _jobs(capsys.readouterr().err)] == [stage, stage], "the next release's too"


def test_nothing_is_removed_before_its_replacement_is_there(world: Path, tmp_path: Path) -> None:
    write_network(tmp_path / "alpha", "alpha", 0)
    one = {"alpha": stores_of(tmp_path / "alpha")}
    run(settings(tmp_path, one))
    run(settings(tmp_path, one, methods=["ghost", "msp", "maxlogit", "energy"]))
    folder = tmp_path / "study" / "alpha"
    shutil.copytree(folder / "evaluation", folder / "evaluation-backup")
    (folder / "evaluation-notes").mkdir()
    (folder / "evaluation-notes" / "thesis.tex").write_text("mine")
    (folder / "evaluation-3").mkdir()
    (folder / "evaluation-3" / "notes.txt").write_text("mine too")
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    shutil.move(tmp_path / "alpha" / "near" / "rows", tmp_path / "rows")  # so that the next evaluation fails
    with pytest.raises(GateFailed, match="alpha"):
        run(settings(tmp_path, one, draws=6))
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    shutil.move(tmp_path / "rows", tmp_path / "alpha" / "near" / "rows")
    run(settings(tmp_path, one, draws=6))
    assert {found.name for found in folder.glob("evaluation*")} == {
        "evaluation",
        "evaluation-backup",
        "evaluation-notes",
        "evaluation-3",
    }
    kept = {
        file: content
        for file, content in before.items()
        if file.parts[len(folder.parts)][11:] in ("backup", "notes", "3")
    }
    assert len(kept) > 5
    assert all(file.read_bytes() == content for file, content in kept.items())
    made = json.loads((folder / "evaluation" / "manifest.json").read_text())
    assert made["config"]["draws"] == 6


def test_an_evaluation_whose_manifest_names_too_few_stores_is_made_again(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(world / "study", tmp_path / "study")
    place = tmp_path / "study" / "alpha" / "evaluation" / "manifest.json"
    made = json.loads(place.read_text())
    del made["seal"]
    place.write_text(json.dumps({**made, "data": made["data"][:2]}))
    run(settings(world, {name: stores_of(world / name) for name in ("alpha", "mae-h")}, out=str(tmp_path / "study")))
    assert _jobs(capsys.readouterr().err) == ["alpha: evaluate ghost, msp, maxlogit on near, far"]


def test_two_studies_on_one_folder_do_not_run_at_once(world: Path, tmp_path: Path) -> None:
    config = settings(world, {"alpha": stores_of(world / "alpha")}, out=str(tmp_path / "study"))
    run(config)
    with hold(str(tmp_path / "study" / ".work"), "study"), pytest.raises(Busy, match="another study works on"):
        run(config)
    run(config)


def test_a_network_that_fails_is_reported_and_the_others_finish(world: Path, tmp_path: Path) -> None:
    broken = stores_of(world / "gamma")
    broken["stores"]["known"] = str(world / "alpha" / "known")
    networks = {"alpha": stores_of(world / "alpha"), "broken": broken, "gone": stores_of(tmp_path / "nowhere")}
    with pytest.raises(GateFailed, match=r"broken: known.*alpha.*gamma.*gone: .*does not exist") as refusal:
        run(settings(world, networks, out=str(tmp_path / "study")))
    assert refusal.value.exit_code == 1
    content = json.loads((tmp_path / "study" / "results.json").read_text())
    assert [network["name"] for network in content["networks"]] == ["alpha"]
    assert [entry["network"] for entry in content["failed"]] == ["broken", "gone"]
    assert "could not be finished" in (tmp_path / "study" / "report.html").read_text()
    with pytest.raises(GateFailed, match="no network could be finished"):
        run(settings(world, {"gone": networks["gone"]}, out=str(tmp_path / "other")))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"groups": {"all": ["near", "nowhere"]}}, "'nowhere', which is no unknown set"),
        ({"groups": {"near": ["near"]}}, "near is the name of an unknown set already"),
        ({"networks": {"a": {}}}, "neither a `model` nor `stores`"),
        ({"networks": {"a": {"model": "resnet18"}}}, "`fit` is needed"),
        ({"networks": {"tables": {"model": "resnet18"}}}, "cannot be called tables"),
    ],
)
def test_settings_that_cannot_work_are_refused(world: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        settings(world, **{"networks": {"alpha": stores_of(world / "alpha")}, **changes})


def test_a_folder_of_something_else_and_a_wrong_method_are_refused_before_anything_runs(
    world: Path, tmp_path: Path
) -> None:
    networks = {"alpha": stores_of(world / "alpha")}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="is no study"):
        run(settings(world, networks, out=str(tmp_path / "mine")))
    with pytest.raises(InputError, match="unknown method"):
        run(settings(world, networks, out=str(tmp_path / "study"), methods=["ghost", "mps"]))
    assert not (tmp_path / "study").exists()


def test_a_study_without_ghost_of_one_network_and_set_is_shown_too(world: Path, tmp_path: Path) -> None:
    networks = {"alpha": stores_of(world / "alpha", ("near",))}
    out = tmp_path / "study"
    run(settings(world, networks, out=str(out), methods=["maxlogit", "msp"], groups={}))
    content = json.loads((out / "results.json").read_text())
    assert content["tests"] == content["pooled"] == content["published"] == []
    assert {cell["method"] for cell in content["results"]} == {"maxlogit", "msp"}
    page = (out / "report.html").read_text()
    assert "2 methods measured on 1 network and 1 unknown set." in page
    assert sorted(file.stem for file in (out / "tables").glob("*.tex")) == [
        "all-methods",
        "fairness",
        "networks",
        "overall",
    ]
    shown = report.run(ReportConfig(folders=(str(out),), out=str(tmp_path / "page.html"), plots=False))
    assert shown["verdict"] == ["2 methods measured on 1 network and 1 unknown set."]
    (out / "results.json").write_text("{}")
    with pytest.raises(InputError, match="does not hold a study"):
        report.run(ReportConfig(folders=(str(out),), plots=False))


def test_a_study_is_shown_wherever_it_stands_among_the_folders(world: Path, tmp_path: Path) -> None:
    _evaluated_alone(world, tmp_path / "alone", "gamma", ("ghost", "msp"), ("near",))
    folders = [str(tmp_path / "alone"), str(world / "study")]
    for order in (folders, folders[::-1]):
        shown = report.run(ReportConfig(folders=tuple(order), out=str(tmp_path / "page.html"), plots=False))
        assert {section["kind"] for section in shown["sections"]} == {"study", "network", "evaluation"}
        assert len(shown["verdict"]) == 2
    shutil.copytree(world / "study", tmp_path / "second")
    both = (str(world / "study"), str(tmp_path / "second"))
    with pytest.raises(InputError, match="several studies"):
        report.run(ReportConfig(folders=both, out=str(tmp_path / "page.html"), plots=False))


def test_every_method_that_a_network_allows_is_taken_for_all(world: Path, tmp_path: Path) -> None:
    networks = {"alpha": stores_of(world / "alpha", ("near",))}
    config = settings(world, networks, out=str(tmp_path / "study"), methods=["all"], groups={}, draws=2)
    run(config)
    methods = json.loads((tmp_path / "study" / "results.json").read_text())["methods"]
    assert {"ghost", "ghost-full", "msp", "knn", "vim"} <= set(methods)
    tests = json.loads((tmp_path / "study" / "results.json").read_text())["tests"]
    rivals = [test for test in tests if test["metric"] == "auroc" and not test["method"].startswith("ghost")]
    assert all(test["p_bonferroni"] == pytest.approx(min(1.0, len(rivals) * test["p"])) for test in rivals)
