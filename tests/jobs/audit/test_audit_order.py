"""Rows of a class in the order of the hash that samples them: the same audit, and hardly anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.stores import Toy, write_store

from ghost_ray.config import AuditConfig
from ghost_ray.errors import InputError
from ghost_ray.jobs import audit
from ghost_ray.store import RowGroups, Store

ROWS = [3000, 40, 200, 700]  # of each class; some of them misclassified
MAX_N = 150
GROUP = 100


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    """The same rows in the order of the hash, and as they come."""
    rng = np.random.default_rng(0)
    toy = Toy.make(rng, classes=len(ROWS), dimensions=5)
    label = np.repeat(np.arange(len(ROWS)), ROWS)
    pred = np.where(rng.random(len(label)) < 0.8, label, (label + 1) % len(ROWS))
    embedding = rng.standard_exponential((len(label), 5)).astype(np.float32)
    place = tmp_path_factory.mktemp("stores")
    return {
        str(order): write_store(place / str(order), embedding, label, toy, pred=pred, group_rows=GROUP, order=order)
        for order in (None, "hash")
    }


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many rows were read of each store's embeddings."""
    read: dict[str, int] = {}
    original = Store.batches

    def noted(self: Store, groups: RowGroups, **options: bool) -> Any:
        read[self.uri] = read.get(self.uri, 0) + groups.rows
        return original(self, groups, **options)

    monkeypatch.setattr(Store, "batches", noted)
    return read


def audited(store: Store, out: Path, **options: Any) -> dict[str, Any]:
    summary = audit.run(AuditConfig(store=store.uri, out=str(out), max_n=MAX_N, **options))
    table = pq.read_table(out / "normality.parquet")
    examples = pq.read_table(out / "examples.parquet")
    facts = {name: value for name, value in summary.items() if name not in ("audit", "store", "seconds")}
    return {"summary": facts, "cells": table.to_pydict(), "examples": examples.to_pydict()}


@pytest.mark.parametrize("seed", [0, 1])
def test_the_order_changes_nothing_but_what_is_read(
    stores: dict[str, Store], rows_read: dict[str, int], tmp_path: Path, seed: int
) -> None:
    found = {order: audited(store, tmp_path / order, seed=seed) for order, store in stores.items()}
    assert found["hash"] == found["None"]
    assert [entry["available"] for entry in found["hash"]["summary"]["sampled_classes"]] == pytest.approx(
        [0.8 * ROWS[0], 0.8 * ROWS[2], 0.8 * ROWS[3]], rel=0.2
    )
    read, whole = (rows_read[stores[order].uri] for order in ("hash", "None"))
    # The classes of the examples are read a second time.
    assert whole >= sum(ROWS)
    assert read < whole / 3 if seed == 0 else read == whole


def test_a_large_class_costs_no_more_than_the_row_groups_of_its_sample(
    stores: dict[str, Store], rows_read: dict[str, int]
) -> None:
    from ghost_ray.jobs.audit.class_tests import Sampling, class_samples

    store = stores["hash"]
    holding = [groups for groups in store.class_row_groups(0) if groups.last_label == 0]
    ((label, total, sample),) = class_samples(store, holding, Sampling(MAX_N, 0))
    assert (label, len(sample)) == (0, MAX_N)
    assert total == pytest.approx(0.8 * ROWS[0], rel=0.1)
    assert rows_read[store.uri] == 2 * GROUP  # 150 correct ones are among about 190


def test_a_store_that_is_not_in_the_order_it_promises_is_refused(
    stores: dict[str, Store], tmp_path: Path, rng: np.random.Generator
) -> None:
    plain = stores["None"]
    lying = Store(plain.uri, plain.manifest.model_copy(update={"order": "hash"}), plain.files)
    with pytest.raises(InputError, match=r"rows/.*: row \d+ is not in the order of hashes that the manifest promises"):
        audit.audit_job.audit_store(AuditConfig(store=plain.uri, out=str(tmp_path / "a"), max_n=MAX_N), lying)
