"""Kept fits: every method scores as the one that was fitted, and what is not as it was written is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.evaluations import make_toy, settings, write_stores
from support.stores import write_store

from ghost_ray import scorers
from ghost_ray.cluster import ray_session, workers
from ghost_ray.jobs.evaluate import fitting, kept_fits
from ghost_ray.jobs.evaluate.evaluate_plan import Plan, make_plan
from ghost_ray.jobs.evaluate.fitting import fit_all
from ghost_ray.jobs.evaluate.kept_fits import KeptFits, is_kept, made_from
from ghost_ray.jobs.evaluate.scoring import score_set
from ghost_ray.scorers.mds import MDS

METHODS = (*scorers.names(), "vim:d=3", "evm:negatives=100", "nnguide:k=5:fraction=0.2")
REFITTED = {"knn"}  # a bank is the training rows


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stores")
    write_stores(place, make_toy())
    return place


def _planned(place: Path, methods: tuple[str, ...], **options: Any) -> tuple[Plan, KeptFits]:
    config = settings(place, place / "never", methods=methods, **options)
    plan = make_plan(config)
    return plan, KeptFits(str(place / "fits"), made_from(config, plan))


def _scores(plan: Plan, fitted: Any, folder: Path) -> dict[str, bytes]:
    scored = score_set(fitted, plan.sets["near"], "near", list(plan.scorers), str(folder))
    return {method: values.tobytes() for method, values in scored.scores.items()}


@pytest.fixture(params=["threads", "ray"])
def session(request: pytest.FixtureRequest, place: Path) -> Iterator[None]:
    config = settings(place, place / "never")
    if request.param == "ray":
        request.getfixturevalue("local_ray")
    with workers(config) if request.param == "threads" else ray_session(config):
        yield


def test_every_method_scores_as_the_one_that_was_fitted(
    place: Path, tmp_path: Path, session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _ = _planned(place, METHODS)
    kept = KeptFits(str(tmp_path / "fits"), "the same")
    fitted = fit_all(plan.scorers, plan.fit, str(tmp_path / "scratch"))
    kept.save(fitted, {})
    expected = _scores(plan, fitted, tmp_path / "a")
    said = [scorer.notes() for scorer in plan.scorers.values()]

    again, _ = _planned(place, METHODS)
    restored = kept.restore(again.scorers)
    needed = {name for name, scorer in again.scorers.items() if scorer.passes or scorer.by_class}
    assert restored.keys() == needed - REFITTED
    for step in ("_run_pass", "_run_classes", "_class_shard"):
        monkeypatch.setattr(fitting, step, lambda *_: pytest.fail("a method was fitted again"))
    from_kept = fit_all(again.scorers, again.fit, str(tmp_path / "scratch"), restored)
    assert _scores(again, from_kept, tmp_path / "b") == expected
    assert [scorer.notes() for scorer in again.scorers.values()] == said
    assert from_kept.kept_bytes().keys() == fitted.kept_bytes().keys()


def test_methods_of_this_package_are_kept_and_what_is_made_from_them_is_not() -> None:
    assert {name for name in scorers.names() if scorers.create(name).kept_classes() is None} == set()
    assert not is_kept(scorers.create("msp"))  # nothing is fitted
    theirs = type("Theirs", (MDS,), {"name": "theirs"})
    assert is_kept(MDS())
    assert not is_kept(theirs())
    assert theirs().kept_classes() is None


def test_a_fit_of_another_store_seed_head_version_or_method_is_not_there(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, kept = _planned(place, ("mds", "nnguide"))
    kept = KeptFits(str(tmp_path), kept.made_from)
    with workers(settings(place, tmp_path / "never")):
        kept.save(fit_all(plan.scorers, plan.fit, str(tmp_path / "scratch")), {})
    again, same = _planned(place, ("mds", "nnguide"))
    assert same.made_from == kept.made_from
    assert kept.restore(again.scorers).keys() == {"mds", "nnguide"}

    toy = make_toy()
    write_store(tmp_path / "other", *toy.known(np.random.default_rng(5), 300), toy)
    others = [_planned(place, ("mds",), seed=1), _planned(place, ("mds",), fit=str(tmp_path / "other"))]
    monkeypatch.setitem(kept_fits.RESULT_VERSIONS, "evaluation", -1)
    others.append(_planned(place, ("mds",)))
    monkeypatch.undo()
    head = plan.scorers["mds"].head
    plan.scorers["mds"].head_ = type(head)(head.weight, head.bias + np.float32(1))
    others.append((plan, KeptFits("", made_from(settings(place, tmp_path), plan))))
    assert len({kept.made_from, *(other.made_from for _, other in others)}) == 5
    for fresh, other in others:
        assert KeptFits(str(tmp_path), other.made_from).restore(fresh.scorers) == {}

    (tmp_path / "nnguide-k=3.json").write_bytes((tmp_path / "nnguide.json").read_bytes())
    (tmp_path / "nnguide-k=3.safetensors").write_bytes((tmp_path / "nnguide.safetensors").read_bytes())
    assert kept.restore(_planned(place, ("nnguide:k=3",))[0].scorers) == {}
    KeptFits(str(tmp_path), "something else").remove_others()
    assert not [*tmp_path.glob("*.json"), *tmp_path.glob("*.safetensors")]


@pytest.mark.parametrize("name", ["mds.json", "mds.safetensors"])
@pytest.mark.parametrize("damage", ["changed", "cut", "empty", "removed"])
def test_a_damaged_fit_is_not_there(place: Path, tmp_path: Path, name: str, damage: str) -> None:
    plan, kept = _planned(place, ("mds",))
    kept = KeptFits(str(tmp_path), kept.made_from)
    with workers(settings(place, tmp_path / "never")):
        kept.save(fit_all(plan.scorers, plan.fit, str(tmp_path / "scratch")), {})
    file = tmp_path / name
    data = file.read_bytes()
    middle = len(data) // 2
    broken = {
        "changed": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "cut": data[:middle],
        "empty": b"",
    }
    file.unlink()
    if damage in broken:
        file.write_bytes(broken[damage])
    fresh, _ = _planned(place, ("mds",))
    assert kept.restore(fresh.scorers) == {}
    assert fresh.scorers["mds"].fitted_values() == {}


def test_a_fit_that_is_too_large_is_not_kept(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = make_toy()
    monkeypatch.setattr(kept_fits, "MOST_BYTES", 4 * toy.classes * toy.dimensions**2)
    plan, kept = _planned(place, ("ghost", "ghost-full"))
    with workers(settings(place, tmp_path / "never")):
        KeptFits(str(tmp_path), kept.made_from).save(fit_all(plan.scorers, plan.fit, str(tmp_path / "scratch")), {})
    assert sorted(file.name for file in tmp_path.glob("*.*")) == ["ghost.json", "ghost.safetensors"]
