"""Rows and the head: what is derived, when it is computed, and what rows without logits say."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from ghost_ray import rows as module
from ghost_ray.rows import Head, Rows, chunks, logsumexp


def make_head(classes: int = 4, dimensions: int = 6, seed: int = 0) -> Head:
    rng = np.random.default_rng(seed)
    return Head(rng.normal(size=(classes, dimensions)).astype(np.float32), rng.normal(size=classes).astype(np.float32))


def make_rows(n: int = 20, seed: int = 1, head: Head | None = None, logits: bool = True) -> Rows:
    rng = np.random.default_rng(seed)
    head = head or make_head()
    embedding = rng.normal(size=(n, head.weight.shape[1])).astype(np.float32)
    given = head.logits(embedding)
    label = rng.integers(-1, head.weight.shape[0], n)
    return Rows(label, given.argmax(1), embedding, given if logits else None, np.arange(n, dtype=np.uint64))


@settings(max_examples=25, deadline=None)
@given(n=st.integers(0, 2100), dimensions=st.integers(1, 40), seed=st.integers(0, 2**31))
def test_one_logit_per_row_is_that_of_the_whole_product(n: int, dimensions: int, seed: int) -> None:
    head = make_head(5, dimensions, seed)
    embedding = np.random.default_rng(seed).normal(size=(n, dimensions)).astype(np.float32)
    index = np.random.default_rng(seed + 1).integers(0, 5, n)
    expected = embedding.astype(np.float64) @ head.weight.T.astype(np.float64) + head.bias
    np.testing.assert_allclose(head.logit_of(embedding, index), expected[np.arange(n), index], rtol=1e-9, atol=1e-9)


def test_logits_beyond_float32_are_float64() -> None:
    head = make_head()
    logits = head.logits(np.full((1, 6), 3e38, np.float32))
    assert logits.dtype == np.float64
    assert np.isfinite(logits).all()


def test_a_head_of_two_shapes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"weight must be \[K, D\] and bias \[K\], got \(4, 6\) and \(3,\)"):
        Head(np.zeros((4, 6), np.float32), np.zeros(3, np.float32))


def test_the_top_logit_is_the_given_one_and_else_the_heads() -> None:
    head = make_head()
    full, bare = make_rows(head=head), make_rows(head=head, logits=False)
    np.testing.assert_array_equal(full.top_logit(head), full.logits.max(axis=1).astype(np.float64))
    np.testing.assert_array_equal(bare.top_logit(head), head.logit_of(bare.embedding, bare.pred))
    np.testing.assert_allclose(bare.top_logit(head), full.top_logit(), rtol=1e-5)


def test_rows_say_what_they_come_without() -> None:
    bare = Rows(np.zeros(2, int), np.zeros(2, int), np.zeros((2, 3), np.float32))
    assert not bare.has_logits
    for ask in (lambda: bare.logits, lambda: bare.energy, bare.top_logit):
        with pytest.raises(ValueError, match="have no logits"):
            ask()
    with pytest.raises(ValueError, match="have no identities"):
        _ = bare.row_id
    assert bare.finite.all()


@pytest.mark.parametrize("short", ["pred", "embedding", "logits", "row_id"])
def test_columns_of_other_lengths_are_refused(short: str) -> None:
    full = make_rows()
    columns = {name: getattr(full, name) for name in ("label", "pred", "embedding", "logits", "row_id")}
    with pytest.raises(ValueError, match=f"{short} has 19 rows, label has 20"):
        Rows(**{**columns, short: columns[short][:-1]})


def test_finite_looks_at_the_logits_that_are_there() -> None:
    full = make_rows()
    embedding, logits = full.embedding.copy(), full.logits.copy()
    embedding[3, 1], logits[5, 2] = np.inf, np.nan
    broken = Rows(full.label, full.pred, embedding, logits)
    assert np.flatnonzero(~broken.finite).tolist() == [3, 5]
    assert np.flatnonzero(~Rows(full.label, full.pred, embedding).finite).tolist() == [3]


def test_taken_rows_are_the_chosen_ones_in_every_column() -> None:
    full = make_rows()
    assert full.take(np.ones(len(full), bool)) is full
    chosen = full.take(full.correct)
    assert (chosen.label == chosen.pred).all()
    for name in ("label", "pred", "embedding", "logits", "row_id", "energy", "correct", "finite"):
        np.testing.assert_array_equal(getattr(chosen, name), getattr(full, name)[full.correct])
    assert not make_rows(logits=False).take(np.arange(3)).has_logits


def test_what_is_derived_is_computed_once_and_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(module, "logsumexp", lambda logits: asked.append(1) or logsumexp(logits))
    full = make_rows()
    assert not asked
    assert full.energy is full.energy
    assert len(asked) == 1
    again = pickle.loads(pickle.dumps(full))
    np.testing.assert_array_equal(again.energy, full.energy)
    assert len(asked) == 1


def test_threads_with_rows_of_their_own_do_not_wait_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(2)
    monkeypatch.setattr(module, "logsumexp", lambda logits: meeting.wait(timeout=30) and None)
    threads = [threading.Thread(target=getattr, args=(make_rows(), "energy")) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not meeting.broken


@given(rows=st.integers(0, 50), size=st.integers(1, 20))
def test_chunks_cover_every_row_once(rows: int, size: int) -> None:
    assert [row for part in chunks(rows, size) for row in range(rows)[part]] == list(range(rows))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e30])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_logsumexp_equals_scipy(scale, temperature):
    logits = (np.random.default_rng(0).normal(size=(700, 33)) * scale).astype(np.float32)
    expected = special.logsumexp(logits.astype(np.float64) / temperature, axis=1)
    assert logsumexp(logits, temperature) == pytest.approx(expected, rel=1e-13)
