"""One more set in a study: no kept fit is made again, the knowns are not scored again, and the bytes are the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.studies import settings, stores_of, write_network

from ghost_ray import scorers
from ghost_ray.config import EvaluateConfig
from ghost_ray.files import OutputFolder
from ghost_ray.jobs import evaluate
from ghost_ray.jobs.evaluate import fitting, scoring
from ghost_ray.jobs.evaluate.fitted_methods import merged_passes
from ghost_ray.jobs.study import run
from ghost_ray.scorers.mds import MDS

METHODS = ("ghost", "ghost-gpd", "ghost-full", "msp", "knn", "nnguide", "scale", "evm", "vim", "rmds")
SETS = ("near", "far", "third")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stores of a network, a study of two of its three sets, and the third evaluated by itself."""
    folder = tmp_path_factory.mktemp("world")
    write_network(folder / "net", "net", 0)
    _study(folder, folder / "two", SETS[:2])
    stores = stores_of(folder / "net", ("third",))["stores"]
    out = str(folder / "alone")
    evaluate.run(EvaluateConfig(**stores, methods=METHODS, draws=4, draw_size=100, out=out))
    return folder


@pytest.fixture
def study(world: Path, tmp_path: Path) -> Path:
    """A copy of the study of two sets."""
    return Path(shutil.copytree(world / "two", tmp_path / "study"))


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """What is fitted in passes and by class, what gets its shards from the rows, and what scores the knowns."""
    done: dict[str, set[str]] = {"fitted": set(), "shards": set(), "knowns": set()}
    run_pass, run_classes = fitting._run_pass, fitting._run_classes
    make_shards, writer = fitting._make_shards, scoring._writer

    def noted_pass(methods: dict[str, Any], pass_index: int, *rest: Any) -> None:
        done["fitted"] |= {name for name, scorer in methods.items() if merged_passes(scorer) > pass_index}
        run_pass(methods, pass_index, *rest)

    def noted_classes(methods: dict[str, Any], *rest: Any) -> None:
        done["fitted"] |= methods.keys()
        run_classes(methods, *rest)

    def noted_shards(scorer: Any, reader: Any) -> list[Any]:
        done["shards"].add(scorer.name)
        return make_shards(scorer, reader)

    def noted_writer(folder: str, method: str, name: str) -> Any:
        if name == "known":
            done["knowns"].add(method)
        return writer(folder, method, name)

    monkeypatch.setattr(fitting, "_run_pass", noted_pass)
    monkeypatch.setattr(fitting, "_run_classes", noted_classes)
    monkeypatch.setattr(fitting, "_make_shards", noted_shards)
    monkeypatch.setattr(scoring, "_writer", noted_writer)
    return done


def _study(world: Path, out: Path, sets: tuple[str, ...], methods: tuple[str, ...] = METHODS, **changes: Any) -> None:
    networks = {"net": stores_of(world / "net", sets)}
    run(settings(world, networks, out=str(out), methods=list(methods), groups={}, **changes))


def _results(evaluation: Path) -> dict[str, bytes]:
    """Everything that an evaluation writes but its manifest, which has times."""
    files = [file for file in evaluation.rglob("*") if file.is_file() and file.name != "manifest.json"]
    return {str(file.relative_to(evaluation)): file.read_bytes() for file in files}


def _kept(study: Path) -> Path:
    return study / ".work" / "kept" / "net"


def _said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("study: ")]


def test_one_more_set_is_all_that_is_scored(
    world: Path, study: Path, tmp_path: Path, work: dict[str, set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    _study(world, study, SETS)
    assert work == {"fitted": set(), "shards": {"knn"}, "knowns": set()}
    assert _said(capsys) == [f"study: net: evaluate {', '.join(METHODS)} on third; fitted again: knn"]
    assert _results(study / "net" / "evaluation-2") == _results(world / "alone")
    costs = json.loads((study / "net" / "evaluation-2" / "manifest.json").read_text())["costs"]
    assert {method for method, cost in costs.items() if cost["fit_seconds"]} == {"knn"}

    _study(world, tmp_path / "fresh", SETS)
    assert (study / "results.parquet").read_bytes() == (tmp_path / "fresh" / "results.parquet").read_bytes()
    added, fresh = (json.loads((each / "results.json").read_text()) for each in (study, tmp_path / "fresh"))
    for part in ("results", "tests", "pooled", "group_means", "published"):
        assert added[part] == fresh[part]


def test_two_sets_one_after_the_other_take_the_same_fits(
    world: Path, tmp_path: Path, work: dict[str, set[str]]
) -> None:
    study = tmp_path / "study"
    _study(world, study, SETS[:1])
    for found in work.values():
        found.clear()
    _study(world, study, SETS[:2])
    _study(world, study, SETS)
    assert work == {"fitted": set(), "shards": {"knn"}, "knowns": set()}
    assert _results(study / "net" / "evaluation-3") == _results(world / "alone")


@pytest.mark.parametrize(
    ("file", "fitted", "shards", "knowns"),
    [
        (".work/kept/net/fits/rmds.safetensors", {"rmds"}, set(), set()),
        (".work/kept/net/fits/ghost.json", {"ghost"}, set(), set()),
        (".work/kept/net/fits/ghost-full.safetensors", set(), {"ghost-full"}, set()),
        (".work/kept/net/known.json", set(), set(), set(METHODS)),
        ("net/evaluation/scores/evm__known.parquet", set(), set(), {"evm"}),
    ],
)
def test_what_is_damaged_is_made_again(
    world: Path,
    study: Path,
    work: dict[str, set[str]],
    file: str,
    fitted: set[str],
    shards: set[str],
    knowns: set[str],
) -> None:
    place = study / file
    data = bytearray(place.read_bytes())
    data[len(data) // 2] ^= 1
    place.write_bytes(data)
    _study(world, study, SETS)
    assert work == {"fitted": fitted, "shards": {"knn"} | shards, "knowns": knowns}
    assert _results(study / "net" / "evaluation-2") == _results(world / "alone")


def test_what_an_interrupted_run_fitted_is_kept(
    world: Path, tmp_path: Path, work: dict[str, set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "study"
    publish = OutputFolder.publish

    def interrupted(self: OutputFolder) -> None:
        if self.uri.endswith("evaluation"):
            raise KeyboardInterrupt
        publish(self)

    monkeypatch.setattr(OutputFolder, "publish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _study(world, study, ("third",))
    monkeypatch.setattr(OutputFolder, "publish", publish)
    (_kept(study) / "fits" / "mds.safetensors.partial").write_bytes(b"half")
    for found in work.values():
        found.clear()
    _study(world, study, ("third",))
    assert work == {"fitted": set(), "shards": {"knn"}, "knowns": set(METHODS)}
    assert _results(study / "net" / "evaluation") == _results(world / "alone")
    assert not (_kept(study) / "fits" / "mds.safetensors.partial").exists()


def test_fits_of_another_store_are_removed_and_those_of_another_known_set_are_used(
    world: Path, study: Path, tmp_path: Path, work: dict[str, set[str]]
) -> None:
    assert {file.stem for file in (_kept(study) / "fits").iterdir()} == set(METHODS) - {"msp", "scale", "knn"}
    write_network(tmp_path / "net", "net", 7)
    networks = {"net": stores_of(world / "net", ("near",))}
    options: dict[str, Any] = {"out": str(study), "methods": ["ghost", "rmds"], "groups": {}}
    networks["net"]["stores"]["known"] = str(tmp_path / "net" / "known")
    run(settings(world, networks, **options))
    assert work == {"fitted": set(), "shards": set(), "knowns": {"ghost", "rmds"}}
    networks["net"]["stores"]["fit"] = str(tmp_path / "net" / "fit")
    run(settings(world, networks, **options))
    assert work["fitted"] == {"ghost", "rmds"}
    names = {file.name for file in (_kept(study) / "fits").iterdir()}
    assert names == {"ghost.json", "ghost.safetensors", "rmds.json", "rmds.safetensors"}


def test_a_method_of_others_is_fitted_again_and_named(
    world: Path, tmp_path: Path, work: dict[str, set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study"
    theirs = scorers.register(type("Theirs", (MDS,), {"name": "theirs", "__doc__": "As mds."}))
    try:
        _study(world, study, ("near",), ("mds", "theirs"))
        for found in work.values():
            found.clear()
        capsys.readouterr()
        _study(world, study, ("near", "third"), ("mds", "theirs"))
    finally:
        scorers.unregister(theirs.name)
    assert work == {"fitted": {"theirs"}, "shards": set(), "knowns": {"theirs"}}
    assert _said(capsys) == ["study: net: evaluate mds, theirs on third; fitted again: theirs"]
    scores = study / "net" / "evaluation-2" / "scores"
    for name in ("known", "third"):
        assert (scores / f"mds__{name}.parquet").read_bytes() == (scores / f"theirs__{name}.parquet").read_bytes()
