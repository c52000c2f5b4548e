"""A look at a store reads little of it, always the same, and sees what is there; labels are counted in tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.stores import Toy, write_store

from ghost_ray.checks import of_set
from ghost_ray.cluster import threads
from ghost_ray.cluster.check_sample import count_labels, look_at, some_groups
from ghost_ray.store import RowGroups, Store


@pytest.fixture(autouse=True)
def _in_threads() -> Iterator[None]:
    with threads(2):
        yield


@pytest.mark.parametrize("stored_logits", [True, False])
def test_all_labels_and_some_rows_are_seen(tmp_path: Path, rng: np.random.Generator, stored_logits: bool) -> None:
    toy = Toy.make(rng, classes=40, dimensions=6)
    features, label = toy.known(rng, 8000)
    store = write_store(tmp_path / "s", features, label, toy, group_rows=700, stored_logits=stored_logits)
    seen = look_at(store)
    np.testing.assert_array_equal(np.repeat(seen.labels.label, seen.labels.n), label)
    wrong = np.bincount(label[toy.logits(features).argmax(1) != label], minlength=40)
    counted = seen.labels
    np.testing.assert_array_equal(np.bincount(counted.label, counted.n * (counted.label != counted.pred)), wrong)
    assert counted.accuracy == 1 - wrong.sum() / 8000
    assert 1800 <= len(seen.sample) <= 2048
    rows = {row.tobytes() for row in features}
    assert all(row.tobytes() in rows for row in seen.sample.embedding)
    assert len({row.tobytes() for row in seen.sample.embedding}) == len(seen.sample)
    np.testing.assert_array_equal(toy.logits(seen.sample.embedding).argmax(1), seen.sample.pred)
    assert seen.sample.has_logits == stored_logits == (seen.head is None)
    np.testing.assert_array_equal(look_at(Store.open(str(tmp_path / "s"))).sample.embedding, seen.sample.embedding)
    assert len(some_groups(store, 3)) == 3
    assert len(some_groups(store, 1000)) == len(store.row_groups(0))


def test_of_a_small_store_all_is_seen_and_of_an_empty_one_nothing(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng)
    features, label = toy.known(rng, 90)
    features[7, 2] = np.nan
    assert len(look_at(write_store(tmp_path / "s", features, label, toy)).sample) == 89, "a NaN is no feature"
    empty = write_store(tmp_path / "e", np.empty((0, toy.dimensions), np.float32), np.empty(0, np.int32), toy)
    assert of_set(look_at(empty)) == []


def test_labels_are_counted_in_tasks_and_no_task_gets_more_than_four_files(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Toy.make(rng, classes=40, dimensions=6)
    store = write_store(tmp_path / "s", *toy.known(rng, 8000), toy, group_rows=40)
    read: list[tuple[str, str]] = []
    small = Store.read_small

    def watched(self: Store, groups: RowGroups, *columns: str) -> pa.Table:
        read.append((threading.current_thread().name, groups.file))
        return small(self, groups, *columns)

    monkeypatch.setattr(Store, "read_small", watched)
    assert count_labels(store).rows == 8000
    assert sorted(file for _, file in read) == sorted(file.name for file in store.files), "each file is read once"
    assert len(store.files) > 20
    assert threading.current_thread().name not in {name for name, _ in read}
