"""Bringing the rows of a class together: nothing is lost, the result depends on the rows alone."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores import Toy, forget_digests, read_row_file, read_row_files, write_row_file, write_store

from ghost_ray.cluster import sort as module
from ghost_ray.cluster import threads
from ghost_ray.cluster.sort import arrange, clustered, plan_buckets, write_run
from ghost_ray.errors import InputError
from ghost_ray.store import RowFile, Store, hash_keys, row_schema, to_table


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 40), st.integers(0, 2**32))
def test_buckets_follow_the_labels_and_hold_about_as_much_as_asked(
    counts: list[int], rows_per_bucket: int, seed: int
) -> None:
    buckets = plan_buckets(np.array(counts), rows_per_bucket)
    label = np.repeat(np.arange(len(counts)) - 1, counts).astype(np.int32)
    bucket = buckets.of(label, np.random.default_rng(seed).integers(0, 2**64, len(label), dtype=np.uint64))
    if len(label):
        assert 0 <= bucket.min() <= bucket.max() < buckets.count
    # A label has the buckets from its first one on to itself, unless it shares a single one.
    for k in np.unique(label):
        assert len(np.unique(bucket[label == k])) <= -(-counts[k + 1] // rows_per_bucket)
    firsts = [bucket[label == k].min() for k in np.unique(label)]
    assert firsts == sorted(firsts)
    whole = [k for k in np.unique(label) if counts[k + 1] <= rows_per_bucket]
    for b in np.unique(bucket):
        assert sum(counts[k + 1] for k in whole if (bucket[label == k] == b).all()) <= rows_per_bucket


def test_the_hash_depends_on_key_and_seed_alone() -> None:
    keys = pa.array(["a", "b", "a", ""])
    first = hash_keys(keys)
    assert first[0] == first[2]
    assert len(set(first.tolist())) == 3
    assert np.array_equal(hash_keys(keys.slice(1)), first[1:])
    assert not np.isin(hash_keys(keys, seed=1), first).any()


FIRST_HASHES = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import pyarrow as pa
from ghost_ray.store import hash_keys

assert "pandas" not in sys.modules
offsets = b"".join(place.to_bytes(4, "little") for place in (0, 1, 2))
keys = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"ab")])
together = threading.Barrier(4)
with ThreadPoolExecutor(4) as pool:
    found = list(pool.map(lambda _: together.wait() is None or hash_keys(keys), range(4)))
assert all((each == found[0]).all() for each in found)
"""


def test_the_first_hashes_may_be_made_in_several_threads() -> None:
    # In a process of its own, in which nothing has imported pandas yet.
    done = subprocess.run([sys.executable, "-c", FIRST_HASHES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def make_inputs(folder: Path, order: np.ndarray, rows: pa.Table, files: int) -> list[str]:
    folder.mkdir()
    places = []
    for i, part in enumerate(np.array_split(order, files)):
        places.append(str(folder / f"{i}.arrow"))
        write_row_file(places[-1], rows.take(pa.array(part)))
    return places


def content(folder: Path, files: list[RowFile]) -> tuple[list[str], list[str]]:
    """Names and digests of the files written."""
    names = sorted(path.name for path in (folder / "rows").iterdir())
    assert names == sorted(file.name for file in files)
    return names, [hashlib.sha256((folder / "rows" / name).read_bytes()).hexdigest() for name in names]


@pytest.fixture
def rows(rng: np.random.Generator) -> pa.Table:
    label = np.concatenate([rng.integers(-1, 5, 200), np.full(300, 2)]).astype(np.int32)
    keys = pa.array([f"k{i:04d}" for i in range(500)])
    group = pa.array([f"folder{i % 7}" if k < 0 else None for i, k in enumerate(label)], pa.string())
    return to_table(keys, label, np.maximum(label, 0), rng.normal(size=(500, 3)).astype(np.float32), group=group)


@pytest.fixture
def in_threads() -> Iterator[None]:
    with threads(2):
        yield


def arranged(folder: Path, inputs: list[str], name: str) -> tuple[list[str], list[str]]:
    files = arrange(inputs, str(folder / name), row_schema(3), 5)
    assert [path.name for path in (folder / name).iterdir()] == ["rows"]
    return content(folder / name, files)


def test_any_order_in_any_files_and_any_rounds_give_the_same_bytes(
    tmp_path: Path, rows: pa.Table, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, local_ray: None
) -> None:
    monkeypatch.setattr(module, "BUCKET_BYTES", 60 * 12)
    monkeypatch.setattr(module, "PART_BYTES", 70 * 12)
    by_label = np.argsort(rows["label"].to_numpy(), kind="stable")
    mixed = make_inputs(tmp_path / "in-mixed", rng.permutation(500), rows, 7)
    on_ray = arranged(tmp_path, mixed, "on-ray")
    assert len(on_ray[0]) > 4
    table = read_row_files(tmp_path / "on-ray" / "rows")
    label, mark = table["label"].to_numpy(), hash_keys(table["key"].combine_chunks())
    assert np.array_equal(np.lexsort((mark, label)), np.arange(500))
    assert table.sort_by("key").equals(rows.sort_by("key"))
    with threads(3):
        for width in (2, 3, 512):
            monkeypatch.setattr(module, "WIDTH", width)
            assert arranged(tmp_path, mixed, f"mixed-{width}") == on_ray
        assert arranged(tmp_path, make_inputs(tmp_path / "in-label", by_label, rows, 20), "by-label") == on_ray


@pytest.mark.usefixtures("in_threads")
def test_rows_that_lie_by_class_are_not_exchanged(
    tmp_path: Path, rows: pa.Table, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUCKET_BYTES", 150 * 12)
    runs: list[str] = []
    monkeypatch.setattr(module, "write_run", lambda run, *rest: runs.append(run[0]) or write_run(run, *rest))
    label = rows["label"].to_numpy()
    folders = [make_inputs(tmp_path / f"class{k}", np.flatnonzero(label == k), rows, 3) for k in range(-1, 5)]
    ordered = arranged(tmp_path, [file for folder in folders for file in folder], "by-class")
    assert runs == []
    mixed = make_inputs(tmp_path / "in-mixed", rng.permutation(500), rows, 7)
    assert arranged(tmp_path, mixed, "mixed") == ordered
    assert len(runs) == 1


@pytest.mark.usefixtures("in_threads")
def test_what_a_killed_run_left_is_not_taken_for_rows(tmp_path: Path, rows: pa.Table) -> None:
    left = tmp_path / "out" / "exchange"
    left.mkdir(parents=True)
    (left / "run-000000.arrow").write_bytes(b"half of")
    names, _ = arranged(tmp_path, make_inputs(tmp_path / "in", np.arange(500), rows, 2), "out")
    assert names == ["part-00000-0000.arrow"]


@pytest.mark.usefixtures("in_threads")
def test_a_key_written_twice_is_kept_once_and_failed_rows_are_left_out(tmp_path: Path, rows: pa.Table) -> None:
    repeated = np.concatenate([np.arange(500), np.arange(50)])
    failed = pc.less(rows["label"], 0)
    inputs = make_inputs(tmp_path / "in", repeated, rows.append_column("failed", failed), 2)
    arrange(inputs, str(tmp_path / "out"), row_schema(3), 5)
    found = read_row_files(tmp_path / "out" / "rows")
    assert found.sort_by("key").equals(rows.filter(pc.invert(failed)).sort_by("key"))


@pytest.mark.usefixtures("in_threads")
def test_keys_whose_hashes_meet_lie_in_the_order_of_the_keys(
    tmp_path: Path, rows: pa.Table, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "hash_keys", lambda keys: np.zeros(len(keys), np.uint64))
    results = [
        arranged(tmp_path, make_inputs(tmp_path / f"in-{name}", order, rows, 3), name)
        for name, order in (("a", np.arange(500)), ("b", rng.permutation(500)))
    ]
    assert results[0] == results[1]
    table = read_row_files(tmp_path / "a" / "rows")
    assert table.equals(rows.sort_by([("label", "ascending"), ("key", "ascending")]))


@pytest.mark.usefixtures("in_threads")
def test_nothing_to_arrange_gives_no_files(tmp_path: Path, rows: pa.Table) -> None:
    inputs = make_inputs(tmp_path / "in", np.arange(0), rows, 1)
    assert arrange(inputs, str(tmp_path / "out"), row_schema(3), 5) == []


@pytest.fixture
def unordered(tmp_path: Path, rng: np.random.Generator) -> Store:
    toy = Toy.make(rng, classes=4, dimensions=3)
    embedding, label = toy.known(rng, 120)
    order = rng.permutation(120)
    return write_store(tmp_path / "foreign", embedding[order], label[order], toy, group_rows=15, layout="unordered")


@pytest.mark.usefixtures("in_threads")
@pytest.mark.parametrize("stored_logits", [False, True])
def test_a_foreign_store_is_copied_once_with_all_its_rows(
    tmp_path: Path, rng: np.random.Generator, stored_logits: bool
) -> None:
    toy = Toy.make(rng, classes=4, dimensions=3)
    embedding, label = toy.known(rng, 120)
    order = rng.permutation(120)
    foreign = write_store(
        tmp_path / "s", embedding[order], label[order], toy, layout="unordered", stored_logits=stored_logits
    )
    copy = clustered(foreign, str(tmp_path / "copy"))
    assert copy.clustered
    assert clustered(copy, str(tmp_path / "never")) is copy
    assert not (tmp_path / "never").exists()
    again = clustered(foreign, str(tmp_path / "copy"))
    assert [file.name for file in again.files] == [file.name for file in copy.files]
    rows = [copy.read(groups) for groups in copy.row_groups()]
    found = np.concatenate([part.embedding for part in rows])
    assert np.array_equal(found[np.lexsort(found.T)], embedding[np.lexsort(embedding.T)])
    assert rows[0].has_logits == stored_logits


@pytest.mark.usefixtures("in_threads")
def test_rows_with_one_key_are_all_kept_in_a_copy(tmp_path: Path, unordered: Store) -> None:
    forget_digests(unordered.uri)
    for file in unordered.files:
        path = Path(unordered.uri) / "rows" / file.name
        table = read_row_file(path)
        write_row_file(path, table.set_column(0, table.schema.field("key"), pa.array([""] * len(table))), 15)
    copy = clustered(Store.open(unordered.uri), str(tmp_path / "copy"))
    assert sum(file.rows for file in copy.files) == 120


@pytest.mark.usefixtures("in_threads")
def test_a_nan_is_named_where_the_user_can_find_it(tmp_path: Path, unordered: Store) -> None:
    forget_digests(unordered.uri)
    name = unordered.files[-1].name
    path = Path(unordered.uri) / "rows" / name
    table = read_row_file(path)
    values = table.column("embedding").to_pylist()
    values[4] = [0.0, float("inf"), 0.0]
    broken = pa.array(values, table.schema.field("embedding").type)
    write_row_file(path, table.set_column(4, table.schema.field("embedding"), broken), 15)
    with pytest.raises(InputError, match=f"rows/{name}: row 4 holds a NaN or an infinity"):
        clustered(Store.open(unordered.uri), str(tmp_path / "copy"))
    assert not (tmp_path / "copy" / "manifest.json").exists()
