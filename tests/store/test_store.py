"""The store: what is written is read back, cut as promised, and refused where it is broken, naming file and row."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores import Toy, all_labels, forget_digests, read_row_file, write_row_file, write_store

from ghost_ray.errors import InputError
from ghost_ray.store import ClusteredWriter, Store, group_ends, inspect_file, row_schema, to_table, write_rows


@pytest.fixture
def toy(rng: np.random.Generator) -> Toy:
    return Toy.make(rng, classes=6, dimensions=4)


@pytest.fixture
def store(tmp_path: Path, toy: Toy, rng: np.random.Generator) -> Store:
    """Six classes in row groups of about ten rows and files of about forty."""
    return write_store(tmp_path / "store", *toy.known(rng, 150), toy, group_rows=10)


def replace_rows(store: Store, file: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change a row file behind the manifest's back, keeping its row groups."""
    forget_digests(store.uri)
    path = Path(store.uri) / "rows" / file
    old = read_row_file(path)
    whole = change(old)
    starts = np.cumsum([0, *(len(chunk) for chunk in old["key"].chunks)]).tolist()
    batches = [whole.slice(start, stop - start).combine_chunks().to_batches()[0] for start, stop in pairwise(starts)]
    with pa.OSFile(str(path), "wb") as file:
        write_rows(file, batches, whole.schema)


def set_value(table: pa.Table, column: str, row: int, value: object) -> pa.Table:
    values = table.column(column).to_pylist()
    values[row] = value
    index = table.column_names.index(column)
    return table.set_column(index, table.schema.field(index), pa.array(values, table.schema.field(index).type))


@pytest.mark.parametrize("stored_logits", [False, True])
def test_reads_back_what_was_written(tmp_path: Path, toy: Toy, rng: np.random.Generator, stored_logits: bool) -> None:
    embedding, label = toy.known(rng, 97)
    store = write_store(tmp_path / "s", embedding, label, toy, group_rows=10, stored_logits=stored_logits)
    parts = [store.read_keyed(groups) for groups in store.row_groups(10 * 4 * toy.dimensions)]
    rows = [part for part, _ in parts]
    order = [int(key.removeprefix("row-")) for _, keys in parts for key in keys.to_pylist()]
    assert sorted(order) == list(range(97))
    assert np.array_equal(np.concatenate([part.embedding for part in rows]), embedding[order])
    assert np.array_equal(np.concatenate([part.label for part in rows]), label[order])
    assert np.array_equal(np.concatenate([part.pred for part in rows]), toy.logits(embedding).argmax(1)[order])
    if stored_logits:
        assert np.array_equal(np.concatenate([part.logits for part in rows]), toy.logits(embedding)[order])
        assert store.head() is None
        assert not any(part.has_logits for part in store.batches(store.row_groups()[0], logits=False))
    else:
        assert np.array_equal(store.head().weight, toy.weight)
        assert np.array_equal(store.head().bias, toy.bias)


def test_batches_are_the_piece_in_order(store: Store) -> None:
    for groups in store.row_groups():
        whole = store.read(groups)
        parts = list(store.batches(groups))
        assert [part.start for part in parts] == np.cumsum([0, *map(len, parts[:-1])]).tolist()
        assert np.array_equal(np.concatenate([part.embedding for part in parts]), whole.embedding)
        assert len(whole) == groups.rows


def test_a_huge_row_group_is_read_in_parts(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng, classes=2, dimensions=1024)
    embedding = rng.normal(size=(9000, 1024)).astype(np.float32)
    store = write_store(tmp_path / "s", embedding, np.sort(rng.integers(0, 2, 9000)), toy, group_rows=9000)
    groups = store.row_groups()[0]
    assert list(groups.numbers) == [0]
    parts = list(store.batches(groups))
    assert len(parts) > 1
    assert max(part.embedding.nbytes for part in parts) <= 8 << 20
    assert np.array_equal(np.concatenate([part.embedding for part in parts]), embedding)


def test_row_groups_hold_whole_classes_and_ranges_share_none(store: Store) -> None:
    label, _ = all_labels(store)
    groups = [group for file in store.files for group in file.groups]
    assert sum(group.rows for group in groups) == len(label)
    start = 0
    for group in groups:
        inside = label[start : start + group.rows]
        assert (group.first_label, group.last_label) == (inside[0], inside[-1])
        start += group.rows
    ranges = store.class_ranges(target_bytes=1)
    seen = [sorted({int(k) for groups in parts for k in store.read(groups).label}) for parts in ranges]
    assert len(ranges) > 3
    assert sorted(k for part in seen for k in part) == sorted(set(label.tolist()))
    assert [group.rows for group in inspect_file(f"{store.uri}/rows/{store.files[0].name}")] == [
        group.rows for group in store.files[0].groups
    ]


def test_a_big_class_spans_groups_and_files_but_one_range(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng, classes=3, dimensions=4)
    label = np.repeat([0, 1, 2], [5, 200, 5])
    store = write_store(tmp_path / "s", rng.normal(size=(210, 4)).astype(np.float32), label, toy, group_rows=10)
    holding = [p for parts in store.class_ranges(1) for p in parts if p.first_label <= 1 <= p.last_label]
    assert len({groups.file for groups in holding}) > 1
    assert len([parts for parts in store.class_ranges(1) if any(p in holding for p in parts)]) == 1
    assert sum(groups.rows for groups in store.class_row_groups(1)) >= 200


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 20))
def test_group_ends_cut_only_classes_that_are_too_large(sizes: list[int], group_rows: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    ends = group_ends(labels, group_rows)
    assert ends[-1] == len(labels)
    assert ends == sorted(set(ends))
    borders = {0, *np.cumsum(sizes).tolist()}
    for start, stop in zip([0, *ends[:-1]], ends, strict=True):
        assert stop - start <= 2 * group_rows
        for cut in (start, stop):
            assert cut in borders or sizes[labels[cut]] > group_rows


def test_a_writer_fed_in_crumbs_writes_the_same_groups(tmp_path: Path, rng: np.random.Generator) -> None:
    label = np.sort(rng.integers(0, 9, 300))
    embedding = rng.normal(size=(300, 4)).astype(np.float32)
    table = to_table(pa.array([str(i) for i in range(300)]), label, label, embedding)
    groups = []
    for step in (300, 7):
        writer = ClusteredWriter(str(tmp_path / str(step)), "part", row_schema(4), group_bytes=20 * 16, file_bytes=1600)
        for start in range(0, 300, step):
            writer.write(table.slice(start, step))
        groups.append([[group.rows for group in file.groups] for file in writer.close()])
    assert sum(map(sum, groups[1])) == 300
    assert all(rows <= 40 for file in groups[1] for rows in file)


def test_a_foreign_store_without_a_file_list_is_inspected(tmp_path: Path, toy: Toy, rng: np.random.Generator) -> None:
    embedding, label = toy.known(rng, 90)
    order = rng.permutation(90)
    store = write_store(tmp_path / "s", embedding[order], label[order], toy, group_rows=10, layout="unordered")
    assert store.manifest.files is None
    assert not store.clustered
    assert sum(file.rows for file in store.files) == 90
    assert np.array_equal(all_labels(store)[0], label[order])
    with pytest.raises(ValueError, match="clustered"):
        store.class_ranges()


def test_a_manifest_that_lies_about_the_order_is_not_believed(store: Store) -> None:
    assert not Store(store.uri, store.manifest, store.files[::-1]).clustered


BROKEN = {
    "wrong label": (lambda t: set_value(t, "label", 3, 6), "row 3 has label 6, allowed: -1…5"),
    "label of another class": (lambda t: set_value(t, "label", 3, 5), "row 3 has label 5, the manifest says"),
    "wrong prediction": (lambda t: set_value(t, "pred", 7, -1), "row 7 has pred -1, allowed: 0…5"),
    "no embedding": (lambda t: _with_null(t, 12), "row 12 has no embedding"),
    "another D": (lambda t: _with_dimensions(t, 5), "column embedding is fixed_size_list"),
    "no column": (lambda t: t.drop_columns(["pred"]), "has no column pred"),
    "text labels": (lambda t: _as_text(t), "column label is string"),
}


def _with_null(table: pa.Table, row: int) -> pa.Table:
    values = table.column("embedding").to_pylist()
    values[row] = None
    return table.set_column(4, "embedding", pa.array(values, pa.list_(pa.float32(), 4)))


def _with_dimensions(table: pa.Table, size: int) -> pa.Table:
    flat = pa.array(np.zeros(size * table.num_rows, np.float32))
    return table.set_column(4, "embedding", pa.FixedSizeListArray.from_arrays(flat, size))


def _as_text(table: pa.Table) -> pa.Table:
    return table.set_column(1, "label", table.column("label").cast(pa.string()))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_with_its_row(store: Store, name: str) -> None:
    change, problem = BROKEN[name]
    file = store.files[0].name
    replace_rows(store, file, change)
    with pytest.raises(InputError) as refused:
        for groups in Store.open(store.uri).row_groups():
            store.read(groups)
    assert f"rows/{file}: {problem}" in str(refused.value)


def test_the_row_is_counted_from_the_start_of_the_file(store: Store) -> None:
    file = store.files[1]
    row = file.groups[0].rows + 2
    replace_rows(store, file.name, lambda t: set_value(t, "pred", row, 99))
    with pytest.raises(InputError, match=f"rows/{file.name}: row {row} has pred 99"):
        [store.read(groups) for groups in store.row_groups(1)]


def test_a_nan_is_named(store: Store) -> None:
    file = store.files[1]
    row = file.groups[0].rows + 1
    replace_rows(store, file.name, lambda t: set_value(t, "embedding", row, [0.0, np.nan, 0.0, 0.0]))
    with pytest.raises(InputError, match=f"rows/{file.name}: row {row} holds a NaN"):
        for groups in store.row_groups():
            for rows in store.batches(groups):
                store.refuse_non_finite(rows, groups)


def test_a_missing_file_and_a_short_one_are_named(store: Store) -> None:
    path = Path(store.uri) / "rows" / store.files[1].name
    write_row_file(path, read_row_file(path).slice(0, 3))
    with pytest.raises(InputError, match=f"rows/{path.name}"):
        [store.read(groups) for groups in store.row_groups()]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=f"rows/{path.name}"):
        [store.read(groups) for groups in store.row_groups()]
    path.unlink()
    with pytest.raises(InputError, match=f"rows/{path.name} is missing"):
        Store.open(store.uri)


def test_a_store_without_manifest_or_with_other_counts_is_refused(store: Store, tmp_path: Path) -> None:
    forget_digests(store.uri)
    manifest = Path(store.uri) / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "rows": 7}))
    with pytest.raises(InputError, match="150 rows, the manifest says 7"):
        Store.open(store.uri)
    manifest.unlink()
    with pytest.raises(InputError, match="incomplete"):
        Store.open(store.uri)
    with pytest.raises(InputError, match="does not exist"):
        Store.open(str(tmp_path / "nowhere"))


def test_the_fingerprint_follows_manifest_and_files(
    store: Store, tmp_path: Path, toy: Toy, rng: np.random.Generator
) -> None:
    other = write_store(tmp_path / "other", *toy.known(rng, 20), toy)
    assert store.fingerprint() == Store.open(store.uri).fingerprint()
    assert store.fingerprint() != other.fingerprint()
    before = other.fingerprint()
    path = Path(other.uri) / "rows" / other.files[0].name
    path.write_bytes(path.read_bytes() + b" ")
    assert other.fingerprint() != before
