"""A store in memory is the one that ``import`` writes: the same rows, row groups and keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores import NETWORK, Toy

from ghost_ray.config import ImportConfig
from ghost_ray.files.manifest import Network
from ghost_ray.jobs.importing import run
from ghost_ray.rows import Head
from ghost_ray.store import ArrayStore, ClusteredWriter, Store, row_keys, row_schema, to_table
from ghost_ray.store.writer import lay_out


def in_memory(embedding: np.ndarray, label: np.ndarray, toy: Toy, head: Head | None = None) -> ArrayStore:
    logits = toy.logits(embedding).astype(np.float32)
    network = Network(name=NETWORK, classes=toy.classes, dimensions=toy.dimensions)
    return ArrayStore(label, logits.argmax(1), embedding, logits, head, network)


@pytest.mark.parametrize("with_head", [False, True])
@pytest.mark.parametrize("sort", [False, True])
def test_it_is_what_import_writes(tmp_path: Path, rng: np.random.Generator, with_head: bool, sort: bool) -> None:
    toy = Toy.make(rng)
    embedding, label = toy.known(rng, 1200)
    mixed = np.arange(len(label)) if sort else rng.permutation(len(label))
    embedding, label = embedding[mixed], label[mixed]
    label[label == 2] = -1
    logits = toy.logits(embedding).astype(np.float32)
    np.savez(tmp_path / "arrays.npz", features=embedding, logits=logits, labels=label)
    np.savez(tmp_path / "head.npz", weight=toy.weight, bias=toy.bias)
    files = dict.fromkeys(("features", "logits", "labels"), str(tmp_path / "arrays.npz"))
    head = {"head": str(tmp_path / "head.npz")} if with_head else {}
    run(ImportConfig(**files, **head, out=str(tmp_path / "store"), model=NETWORK))
    written = Store.open(str(tmp_path / "store"))
    store = in_memory(embedding, label, toy, Head(toy.weight, toy.bias) if with_head else None)
    assert store.row_groups() == written.row_groups()
    assert store.class_ranges() == written.class_ranges()
    assert store.manifest.network.same_as(written.manifest.network)
    for mine, theirs in zip(store.row_groups(), written.row_groups(), strict=True):
        (a, a_key), (b, b_key) = store.read_keyed(mine), written.read_keyed(theirs)
        assert a_key.equals(b_key)
        for name in ("label", "pred", "embedding", *(() if with_head else ("logits",))):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        assert a.has_logits == b.has_logits == (not with_head)
    assert (store.head() is None) == (written.head() is None)


@settings(max_examples=30)
@given(counts=st.lists(st.integers(0, 40), min_size=1, max_size=12), group=st.integers(1, 9), file=st.integers(1, 30))
def test_its_row_groups_are_those_of_the_writer(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], group: int, file: int
) -> None:
    label = np.repeat(np.arange(len(counts)), counts)
    row_bytes = 4 * 3
    folder = tmp_path_factory.mktemp("rows")
    sizes = {"group_bytes": group * row_bytes, "file_bytes": file * row_bytes}
    writer = ClusteredWriter(str(folder), "part", row_schema(3), **sizes)
    for start in range(0, len(label), 7):
        part = label[start : start + 7]
        writer.write(to_table(row_keys(part, 1), part, part, np.zeros((len(part), 3), np.float32)))
    laid_out, written = (
        [(file.name, file.groups.tolist()) for file in files]
        for files in (lay_out(label, row_bytes, **sizes), writer.close())
    )
    assert laid_out == written


def test_row_groups_of_large_arrays_are_read_from_where_they_lie(rng: np.random.Generator) -> None:
    toy = Toy.make(rng, classes=3, dimensions=4000)
    label = np.repeat([0, 1, 2], 2000)
    store = in_memory(rng.normal(size=(6000, 4000)).astype(np.float32), label, toy)
    assert len(store.row_groups()) > 1
    assert [len(store.read(groups)) for groups in store.row_groups()] == [groups.rows for groups in store.row_groups()]
    together = np.concatenate([store.read(groups).label for groups in store.row_groups()])
    np.testing.assert_array_equal(together, label)


def test_the_fingerprint_is_that_of_the_rows(rng: np.random.Generator) -> None:
    toy = Toy.make(rng)
    embedding, label = toy.known(rng, 50)
    first = in_memory(embedding, label, toy).fingerprint()
    assert in_memory(embedding.copy(), label, toy).fingerprint() == first
    embedding[7, 3] += 1
    assert in_memory(embedding, label, toy).fingerprint() != first
