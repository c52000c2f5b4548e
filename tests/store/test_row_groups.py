"""The index of row groups: as long as it needs to be, outside the manifest, checked when it is read."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from support.stores import Toy, forget_digests, write_store

from ghost_ray.config import JobConfig
from ghost_ray.errors import InputError
from ghost_ray.files.manifest import Network, provenance
from ghost_ray.files.tensors import read_tensors, write_tensors
from ghost_ray.store import INDEX, RowFile, Store, StoreManifest, finish_store
from ghost_ray.store.row_groups import group_array


def billion_rows(folder: Path) -> int:
    """A store of 1.2 billion rows as its index and manifest describe it; its row files are empty."""
    groups, files = 600_000, 500
    of_each = groups // files
    (folder / "rows").mkdir(parents=True)
    written = []
    for number in range(files):
        name = f"part-{number:05d}-0000.arrow"
        (folder / "rows" / name).touch()
        labels = [(number * of_each + at) % 21_841 for at in range(of_each)]
        written.append(RowFile(name, group_array((2000, label, label) for label in labels)))
    network = Network(name="large", classes=21_841, dimensions=1280)
    rows = 2000 * groups
    finish_store(str(folder), StoreManifest(**provenance(JobConfig()), network=network, rows=rows), written)
    return rows


def test_a_store_of_more_than_a_billion_rows_is_opened_and_a_task_gets_little_of_it(tmp_path: Path) -> None:
    rows = billion_rows(tmp_path / "s")
    assert (tmp_path / "s" / "manifest.json").stat().st_size < 1 << 20
    store = Store.open(str(tmp_path / "s"))
    assert store.rows == rows
    parts = store.row_groups()
    assert sum(groups.rows for groups in parts) == rows
    last = parts[-1]
    assert last.start + last.rows == store.files[-1].rows
    assert sum(groups.rows for groups in store.class_row_groups(7)) == 28 * 2000
    assert len(pickle.dumps(store)) < 8192, "what every task of a job unpickles"
    assert len(pickle.dumps(last)) < 2048


def test_what_a_task_unpickles_reads_the_same_rows(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng)
    store = write_store(tmp_path / "s", *toy.known(rng, 90), toy, group_rows=10, class_names=list("abcde"))
    arrived = pickle.loads(pickle.dumps(store))
    for groups in store.row_groups(0):
        assert np.array_equal(arrived.read(groups).embedding, store.read(groups).embedding)
    assert np.array_equal(arrived.head().weight, toy.weight)
    with pytest.raises(TypeError):
        arrived.row_groups()  # not an empty list: only the driver knows the index


WRONG = {
    "another length": (lambda a: a | {"rows": a["rows"][:-1]}, "of different lengths"),
    "another type": (lambda a: a | {"file": a["file"].astype(np.int64)}, "does not hold file as a list of int32"),
    "no labels": (lambda a: {name: value for name, value in a.items() if name != "last_label"}, "last_label"),
    "a file too many": (lambda a: a | {"file": a["file"] + 1}, "not numbered in order"),
    "files out of order": (lambda a: a | {"file": a["file"][::-1].copy()}, "not numbered in order"),
    "fewer than no rows": (lambda a: a | {"rows": -a["rows"]}, "cannot be"),
    "too many rows": (lambda a: a | {"rows": a["rows"] + 2**61}, "cannot be"),
    "other labels": (lambda a: a | {"last_label": a["last_label"] + 5}, "labels outside -1…4"),
    "other rows": (lambda a: a | {"rows": a["rows"] + 1}, "the manifest says 90"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_index_that_cannot_be_true_is_refused_in_one_line(
    tmp_path: Path, rng: np.random.Generator, name: str
) -> None:
    toy = Toy.make(rng)
    store = write_store(tmp_path / "s", *toy.known(rng, 90), toy, group_rows=10)
    forget_digests(store.uri)
    change, problem = WRONG[name]
    where = str(tmp_path / "s" / INDEX)
    write_tensors(where, change(read_tensors(where, "store", store.uri)))
    with pytest.raises(InputError, match=problem) as refused:
        Store.open(store.uri)
    assert "\n" not in str(refused.value)


def test_a_missing_or_changed_index_is_damage(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng)
    store = write_store(tmp_path / "s", *toy.known(rng, 90), toy)
    where = tmp_path / "s" / INDEX
    data = bytearray(where.read_bytes())
    data[-1] ^= 1
    where.write_bytes(data)
    with pytest.raises(InputError, match=f"{INDEX} is not as it was written"):
        Store.open(store.uri)
    where.unlink()
    with pytest.raises(InputError, match=f"{INDEX} is missing"):
        Store.open(store.uri)
