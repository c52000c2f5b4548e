"""Methods that users derive from GHOST: each gets its own scores, whatever it is evaluated beside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.evaluations import make_toy, settings, write_stores
from support.studies import settings as study_settings
from support.studies import stores_of, write_network

from ghost_ray.jobs import study
from ghost_ray.jobs.evaluate import run

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
