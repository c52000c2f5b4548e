"""Methods that users derive from GHOST: each gets its own scores, whatever it is evaluated beside."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.random import Generator
from support.evaluations import make_toy, settings, write_stores
from support.stores import write_store
from support.studies import settings as study_settings
from support.studies import stores_of, write_network

from ghost_ray import metrics
from ghost_ray.cli import main
from ghost_ray.errors import InputError
from ghost_ray.jobs import study
from ghost_ray.jobs.evaluate import run
from ghost_ray.jobs.evaluate.evaluate_plan import Plan
from ghost_ray.report.study.lookup import Cells

OWN = "support.own_methods"
VARIANTS = tuple(f"{OWN}:{name}" for name in ("Robust", "Wider", "WiderPareto"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stores")
    write_stores(place, make_toy())
    return place


def _scores(evaluation: Path, method: str, name: str) -> np.ndarray:
    return pq.read_table(evaluation / "scores" / f"{method.replace(':', '-')}__{name}.parquet")["score"].to_numpy()


@pytest.mark.parametrize("beside", [("ghost",), ("ghost-gpd",), ("ghost-full", "ghost", "ghost-gpd")])
def test_a_subclass_of_ghost_has_its_own_scores_beside_ghost(
    place: Path, tmp_path: Path, beside: tuple[str, ...]
) -> None:
    run(settings(place, tmp_path / "beside", methods=[*beside, *VARIANTS]))
    run(settings(place, tmp_path / "without", methods=VARIANTS))
    run(settings(place, tmp_path / "ghost", methods=["ghost", "ghost-gpd"]))
    for name in ("known", "near", "far"):
        for method in VARIANTS:
            alone = _scores(tmp_path / "without", method, name)
            assert np.array_equal(_scores(tmp_path / "beside", method, name), alone)
            assert not np.array_equal(alone, _scores(tmp_path / "ghost", "ghost", name))
        for method in {"ghost", "ghost-gpd"} & set(beside):
            beside_others = _scores(tmp_path / "beside", method, name)
            assert np.array_equal(beside_others, _scores(tmp_path / "ghost", method, name))


def test_a_subclass_that_changes_nothing_scores_as_ghost(place: Path, tmp_path: Path) -> None:
    run(settings(place, tmp_path / "e", methods=["ghost", f"{OWN}:Own"]))
    assert np.array_equal(*(_scores(tmp_path / "e", method, "near") for method in ("ghost", f"{OWN}:Own")))


def test_a_subclass_of_ghost_has_its_own_scores_where_fits_are_kept(tmp_path: Path) -> None:
    write_network(tmp_path / "net", "net", 0)
    options = {"out": str(tmp_path / "study"), "methods": ["ghost", *VARIANTS], "groups": {}}
    for sets in (("near",), ("near", "far")):
        study.run(study_settings(tmp_path, {"net": stores_of(tmp_path / "net", sets)}, **options))
    at = stores_of(tmp_path / "net", ("far",))["stores"]
    run(settings(tmp_path, tmp_path / "alone", **at, methods=VARIANTS))
    for name in ("known", "far"):
        for method in VARIANTS:
            kept = _scores(tmp_path / "study" / "net" / "evaluation-2", method, name)
            assert np.array_equal(kept, _scores(tmp_path / "alone", method, name))


def test_the_scorer_says_whether_it_is_a_rival_and_everything_reads_it_there(tmp_path: Path) -> None:
    """Own inherits it from GHOST, the other says so itself; neither name tells it."""
    write_network(tmp_path / "net", "net", 0)
    variants = [f"{OWN}:Own", f"{OWN}:CalledVariant"]
    methods = ["ghost", *variants, "maxlogit", "energy", "knn"]
    networks = {"net": stores_of(tmp_path / "net")}
    study.run(study_settings(tmp_path, networks, methods=methods))
    folder = tmp_path / "study"
    measured = json.loads((folder / "net" / "evaluation" / "metrics.json").read_text())
    assert {r["method"]: r["rival"] for r in measured["results"]} == {
        method: method not in ("ghost", *variants) for method in methods
    }

    tests = json.loads((folder / "net" / "evaluation" / "significance.json").read_text())["tests"]
    whole = json.loads((folder / "results.json").read_text())
    assert whole["rivals"] == ["maxlogit", "energy", "knn"]
    corrected = {(t["method"], t["unknown"], t["metric"]): t["p_bonferroni"] for t in tests}
    assert corrected == {(t["method"], t["unknown"], t["metric"]): t["p_bonferroni"] for t in whole["tests"]}
    for test in [*tests, *whole["tests"], *whole["pooled"]]:
        family = 2 if test["method"] in variants else 3
        assert test["p_bonferroni"] == min(1.0, family * test["p"])

    for name in ("near", "far"):
        auoscr = {r["method"]: r["auoscr"] for r in measured["results"] if r["unknown"] == name}
        best = Cells(whole).best_rival("net", name, next(m for m in metrics.registered() if m.field == "auoscr"))
        assert best == max(((m, auoscr[m]) for m in whole["rivals"]), key=lambda pair: pair[1])


FAILS = f"{OWN}:Fails"


BROADCAST = (FAILS, "ValueError in own_methods.py, line [0-9]+: operands could not be broadcast together")
INDEX = (f"{FAILS}:kind=index", "IndexError in own_methods.py, line [0-9]+: index 12 is out of bounds")


@pytest.mark.parametrize(
    ("engine", "method", "said"), [("threads", *BROADCAST), ("threads", *INDEX), ("ray", *BROADCAST)]
)
def test_a_mistake_in_somebodys_code_is_named_and_its_traceback_shown_on_request(
    place: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    said: str,
    engine: str,
) -> None:
    if engine == "ray":
        request.getfixturevalue("local_ray")
        monkeypatch.setattr(Plan, "light", False)
    words = ["evaluate", "--fit", str(place / "fit"), "--known", str(place / "known")]
    words += ["--unknown", f"near={place / 'near'}", "--methods", f"ghost,{method}", "--out", str(tmp_path / "e")]
    shown = {}
    for debug in ("", "1"):
        monkeypatch.setenv("GHOST_RAY_DEBUG", debug)
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        shown[debug] = capsys.readouterr().err
    lines = [line for line in shown[""].splitlines() if line.startswith("ghost-ray")]
    assert re.search(rf"--methods '{method}': {said}.* — correct its code, or leave out {method}", lines[0]), lines
    assert lines[0].endswith("(GHOST_RAY_DEBUG=1 shows the traceback)")
    assert "Traceback" not in shown[""]
    assert "in _deep_inside" in shown["1"]
    assert "in score_finite" in shown["1"]


def test_a_detector_that_fails_is_named_with_what_it_may_lack(place: Path, tmp_path: Path, rng: Generator) -> None:
    toy = make_toy()
    embedding, label = toy.known(rng, 300)
    write_store(tmp_path / "some", embedding[label != 2], label[label != 2], toy)
    with pytest.raises(InputError, match=r"^methods 'pytorch-ood:\w+': pytorch-ood:\w+ cannot be .* 1 class \(2\)"):
        run(settings(place, tmp_path / "e", fit=str(tmp_path / "some"), methods=["ghost", "pytorch-ood:SHE"]))
