"""Evaluations where no cluster is named: threads of one process, without Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import ray
from support.evaluations import make_toy, settings, write_stores

from ghost_ray.jobs.evaluate import evaluate_plan, run
from ghost_ray.jobs.evaluate.batches import BatchReader
from ghost_ray.jobs.evaluate.evaluate_plan import make_plan


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stores")
    write_stores(place, make_toy())
    return place


def test_no_method_needs_ray_for_a_small_store_and_each_set_is_read_once(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "init", lambda *_, **__: pytest.fail("Ray was started"))
    read: list[tuple[str, Any]] = []
    original = BatchReader.read

    def noted(self: BatchReader, groups: Any, **options: bool) -> Any:
        read.append((self.store.uri, groups))
        return original(self, groups, **options)

    monkeypatch.setattr(BatchReader, "read", noted)
    methods = ["msp", "maxlogit", "energy", "knn", "nnguide", "ghost-full"]
    result = run(settings(place, tmp_path / "e", methods=methods))
    assert result["methods"] == methods
    for name in ("known", "near", "far"):
        parts = [groups for uri, groups in read if uri == str(place / name)]
        assert len(parts) == len(set(parts)) > 0


def test_what_is_fitted_by_class_or_keeps_a_bank_gets_processes_where_there_is_much(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = {
        methods: make_plan(settings(place, tmp_path / "e", methods=[methods]))
        for methods in ("ghost", "ghost-gpd", "knn")
    }
    assert all(plan.light for plan in plans.values())
    monkeypatch.setattr(evaluate_plan, "_HEAVY_BYTES", 1000)
    assert {methods for methods, plan in plans.items() if plan.light} == {"ghost"}


def test_every_method_says_what_it_cost(place: Path, tmp_path: Path) -> None:
    toy = make_toy()
    methods = ["ghost", "msp", "knn", "ghost-full"]
    result = run(settings(place, tmp_path / "e", methods=methods))
    manifest = json.loads((tmp_path / "e" / "manifest.json").read_text())
    assert result["network"] == manifest["network"]["name"] == "toy"
    costs = manifest["costs"]
    assert list(costs) == methods
    assert all(cost["score_seconds"] > 0 for cost in costs.values())
    assert costs["ghost"]["fit_seconds"] > 0 < costs["ghost-full"]["fit_seconds"]
    gaussians = 2 * 4 * toy.classes * toy.dimensions  # mean and std
    assert costs["ghost"]["fit_bytes"] >= gaussians
    assert costs["msp"]["fit_bytes"] == 0
    assert costs["knn"]["fit_bytes"] >= 4 * 900 * toy.dimensions  # the whole bank
    covariances = 4 * toy.classes * toy.dimensions**2
    assert costs["ghost-full"]["fit_bytes"] >= covariances
    for method in methods:
        files = (tmp_path / "e" / "scores").glob(f"{method}__*.parquet")
        assert costs[method]["score_bytes"] == sum(file.stat().st_size for file in files)
