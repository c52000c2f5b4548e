"""The accumulator against a float64 two-pass, however rows are split; the score against its formula."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghost_ray.gaussians import Accumulator, Gaussians, accumulator, gamma, ghost_score, z_sum
from ghost_ray.rows import Head, Rows

K, D = 5, 7


def two_pass(x, label, classes):
    """Mean and standard deviation, each in a pass of its own and in extended precision; zero where n < 2."""
    mean, std = np.zeros((classes, x.shape[1])), np.zeros((classes, x.shape[1]))
    for k in range(classes):
        rows = x[label == k].astype(np.longdouble)
        if len(rows) >= 2:
            mean[k] = rows.mean(axis=0)
            std[k] = np.sqrt(((rows - rows.mean(axis=0)) ** 2).sum(axis=0) / (len(rows) - 1))
    return mean, std


def accumulate(x, label, classes=K, first_class=0):
    accumulator = Accumulator.empty(classes, x.shape[1], first_class)
    accumulator.update(x, label)
    return accumulator


def make_batch(rows, seed=0, dtype=np.float32, classes=K, dimensions=D):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, classes, size=rows)
    return (rng.standard_normal((rows, dimensions)) * 2 + label[:, None]).astype(dtype), label


def assert_same_state(a, b, rtol=1e-12):
    assert a.first_class == b.first_class
    np.testing.assert_array_equal(a.count, b.count)
    np.testing.assert_allclose(a.mean, b.mean, rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(a.m2, b.m2, rtol=rtol, atol=1e-12)


def assert_same_bits(a, b):
    for name in ("count", "mean", "m2"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("offset", "spread"), [(0, 1), (1e4, 1e-2), (-1e4, 1e-2), (1e6, 1.0), (0, 1e-30), (1e30, 1e29)]
)
def test_equals_a_two_pass(offset, spread, dtype):
    rng = np.random.default_rng(0)
    label = rng.integers(0, K, size=3000)
    x = (offset + spread * rng.standard_normal((3000, 65))).astype(dtype)
    accumulator = Accumulator.empty(K, 65)
    for rows in np.array_split(np.arange(3000), 7):
        accumulator.update(x[rows], label[rows])
    mean, std = two_pass(x, label, K)
    np.testing.assert_allclose(accumulator.mean, mean, rtol=1e-13, atol=spread * 1e-12)
    np.testing.assert_allclose(np.sqrt(accumulator.m2 / (accumulator.count[:, None] - 1)), std, rtol=1e-9)
    gaussians = accumulator.finish()
    assert gaussians.mean.dtype == gaussians.std.dtype == np.float32
    np.testing.assert_allclose(gaussians.mean, mean, rtol=1e-6, atol=spread * 1e-7)
    np.testing.assert_allclose(gaussians.std, std, rtol=1e-6)


def test_a_first_row_far_from_the_rest_costs_few_digits():
    """Deviations are taken from the first row: an outlier there is the worst case."""
    x = np.random.default_rng(1).standard_normal((10_000, 3))
    x[0] = 1e12
    accumulator = accumulate(x, np.zeros(10_000, dtype=int), classes=1)
    _, std = two_pass(x, np.zeros(10_000, dtype=int), 1)
    np.testing.assert_allclose(np.sqrt(accumulator.m2 / 9999), std, rtol=1e-11)


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 120), max_size=6))
@settings(max_examples=60, deadline=None)
def test_any_split_gives_the_same_as_one_pass(seed, cuts):
    x, label = make_batch(120, seed)
    whole = accumulate(x, label)
    pieces = np.split(np.arange(120), sorted(cuts))

    updated = Accumulator.empty(K, D)
    for rows in pieces:
        updated.update(x[rows], label[rows])
    assert_same_state(updated, whole)

    merged = Accumulator.empty(K, D)
    for rows in pieces:
        merged.merge(accumulate(x[rows], label[rows]))
    assert_same_state(merged, whole)


@pytest.mark.parametrize("pieces", [1, 2, 7, 50])
def test_the_same_rows_in_other_files_differ_by_at_most_one_ulp(pieces):
    x, label = make_batch(3000, 10)
    x = x * np.float32(1e-2) + np.float32(1e4)
    rows = np.random.default_rng(11).permutation(3000)
    merged = Accumulator.empty(K, D)
    for piece in np.array_split(rows, pieces):
        merged.merge(accumulate(x[piece], label[piece]))
    expected, actual = accumulate(x, label).finish(), merged.finish()
    np.testing.assert_array_max_ulp(actual.mean, expected.mean, maxulp=1)
    np.testing.assert_array_max_ulp(actual.std, expected.std, maxulp=1)


@given(st.integers(0, 2**32 - 1), st.randoms())
@settings(max_examples=40, deadline=None)
def test_order_of_rows_matters_only_by_rounding(seed, random):
    x, label = make_batch(60, seed)
    rows = list(range(60))
    random.shuffle(rows)
    assert_same_state(accumulate(x[rows], label[rows]), accumulate(x, label))
    by_class = np.argsort(label, kind="stable")
    assert_same_bits(accumulate(x[by_class], label[by_class]), accumulate(x, label))


ranges = st.tuples(st.integers(0, 6), st.integers(1, 6), st.integers(0, 30), st.integers(0, 2**32 - 1))


@given(st.lists(ranges, min_size=3, max_size=3))
@settings(max_examples=80, deadline=None)
def test_merge_is_associative_over_any_ranges(parts):
    def build():
        made = []
        for first, classes, rows, seed in parts:
            x, label = make_batch(rows, seed, classes=classes)
            made.append(accumulate(x, label + first, classes, first))
        return made

    def merge(a, b):
        a.merge(b)
        return a

    left = functools.reduce(merge, build())
    a, b, c = build()
    right = merge(a, merge(b, c))
    swapped = functools.reduce(merge, reversed(build()))
    assert_same_state(left, right)
    assert_same_state(left, swapped)
    assert left.first_class == min(first for first, *_ in parts)
    assert left.stop_class == max(first + classes for first, classes, *_ in parts)
    assert left.count.sum() == sum(rows for _, _, rows, _ in parts)


def test_merging_nothing_changes_no_bit():
    x, label = make_batch(100)
    accumulator = accumulate(x, label)
    before = pickle.loads(pickle.dumps(accumulator))
    accumulator.merge(Accumulator.empty(K, D))
    accumulator.update(x[:0], label[:0])
    accumulator.update(x, label, where=np.zeros(100, dtype=bool))
    assert_same_bits(accumulator, before)
    start = Accumulator.empty(K, D)
    start.merge(before)
    assert_same_bits(start, before)


def test_merge_leaves_the_other_alone_and_writes_to_no_shared_memory():
    x, label = make_batch(100)
    mine, other = accumulate(x[:50], label[:50]), accumulate(x[50:], label[50:])
    shared = [mine.count, mine.mean, mine.m2, other.count, other.mean, other.m2]
    before = [array.copy() for array in shared]
    for array in shared:
        array.flags.writeable = False  # what comes out of Ray's object store
    mine.merge(other)
    mine.update(x, label)
    assert mine.count.sum() == 200
    for array, kept in zip(shared, before, strict=True):
        np.testing.assert_array_equal(array, kept)


def test_where_selects_rows():
    x, label = make_batch(200)
    x[10], label[10] = np.nan, -1  # not selected, so not looked at
    where = np.random.default_rng(3).random(200) < 0.7
    where[10] = False
    accumulator = Accumulator.empty(K, D)
    accumulator.update(x, label, where)
    assert_same_bits(accumulator, accumulate(x[where], label[where]))


def test_constant_dimensions_come_out_exactly():
    x, label = make_batch(300)
    x[:, 2] = 0.1
    x[label == 1, 4] = 1e7 + 1
    accumulator = Accumulator.empty(K + 1, D)
    for rows in np.array_split(np.arange(300), 11):
        accumulator.update(x[rows], label[rows])
    gaussians = accumulator.finish()
    assert gaussians.constant == K + 1  # not those of the class that was never seen
    assert np.all(gaussians.mean[:K, 2] == np.float32(0.1))
    assert np.all(gaussians.inverse_std[:, 2] == 0)


@pytest.mark.parametrize("cells", [1, 2 * D, 1000 * D])
def test_blocks_are_the_whole_cut_by_class(cells, monkeypatch):
    monkeypatch.setattr(accumulator, "_BLOCK_CELLS", cells)
    statistics = Accumulator.empty(K + 2, D)
    statistics.update(*make_batch(300))
    blocks, whole = list(statistics.finish_in_blocks()), statistics.finish()
    assert len(blocks) == -(-(K + 2) // max(1, cells // D))
    for name in ("mean", "std", "count"):
        assert np.array_equal(np.concatenate([getattr(block, name) for block in blocks]), getattr(whole, name))


def test_missing_and_thin_classes_are_named():
    label = np.repeat([1, 2, 3, 4], [1, 2, D - 1, D])
    x = np.random.default_rng(4).standard_normal((len(label), D)).astype(np.float32)
    gaussians = accumulate(x, label).finish()
    assert gaussians.missing.tolist() == [0, 1]
    assert gaussians.thin.tolist() == [2, 3]
    assert gaussians.count.tolist() == [0, 1, 2, D - 1, D]
    assert not gaussians.mean[:2].any()
    assert not gaussians.std[:2].any()


@pytest.mark.parametrize(
    ("x", "label", "message"),
    [
        (np.zeros((3, D + 1)), np.zeros(3, dtype=int), "shape"),
        (np.zeros((3, D)), np.zeros(4, dtype=int), "label must be"),
        (np.zeros((3, D)), np.zeros(3), "integers"),
        (np.zeros((3, D)), np.array([0, K, 1]), f"label {K} in row 1"),
        (np.zeros((3, D)), np.array([0, 1, -1]), "label -1 in row 2"),
        (np.diag([0, np.nan, 0, 0, 0, 0, 0]), np.zeros(D, dtype=int), "row 1"),
        (np.diag([0, 0, 0, -np.inf, 0, 0, 0]), np.arange(D) % K, "row 3"),
        (np.diag([0, 1e300, 0, 0, 0, 0, 0]), np.zeros(D, dtype=int), "too large"),
    ],
)
def test_update_refuses_what_it_cannot_use(x, label, message):
    accumulator = Accumulator.empty(K, D)
    with pytest.raises(ValueError, match=message):
        accumulator.update(x, label)


def test_merge_refuses_another_network():
    with pytest.raises(ValueError, match="dimensions"):
        Accumulator.empty(K, D).merge(Accumulator.empty(K, D + 1))


def make_model(dimensions=D, seed=5):
    x, label = make_batch(400, seed, dimensions=dimensions)
    return accumulate(x, label).finish()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dimensions", [1, 7, 64, 1281])
def test_z_sum_is_its_formula(dimensions, dtype):
    model = make_model(dimensions)
    x, pred = make_batch(300, 6, dtype, dimensions=dimensions)
    expected = (np.abs(x.astype(float) - model.mean[pred]) / model.std[pred].astype(float)).sum(axis=1)
    np.testing.assert_allclose(z_sum(x, pred, model.mean, model.inverse_std), expected, rtol=2e-7)


@pytest.mark.parametrize("dimensions", [1, D, 33, 1280])
def test_z_sum_does_not_depend_on_threads_order_or_batch(dimensions):
    model = make_model(dimensions)
    x, pred = make_batch(8200, 7, dimensions=dimensions)
    expected = z_sum(x, pred, model.mean, model.inverse_std)
    for threads in (2, 3, 64):
        np.testing.assert_array_equal(z_sum(x, pred, model.mean, model.inverse_std, threads), expected)
    shuffled = np.random.default_rng(1).permutation(len(x))
    np.testing.assert_array_equal(z_sum(x[shuffled], pred[shuffled], model.mean, model.inverse_std), expected[shuffled])
    for rows in (slice(5, 6), slice(5, 9), slice(100, 107)):
        np.testing.assert_array_equal(z_sum(x[rows], pred[rows], model.mean, model.inverse_std), expected[rows])


def test_a_constant_dimension_adds_nothing():
    model = make_model()
    std = model.std.copy()
    std[:, 3] = 0
    flat = Gaussians(model.mean, std, model.count)
    x, pred = make_batch(50, 8)
    moved = x.copy()
    moved[:, 3] = 1e30
    np.testing.assert_array_equal(
        z_sum(moved, pred, flat.mean, flat.inverse_std), z_sum(x, pred, flat.mean, flat.inverse_std)
    )


def test_gamma_is_never_nan():
    largest = np.finfo(np.float32).max
    extremes = np.array([0, 1e-45, 1, largest, -largest], dtype=np.float32)
    model = Gaussians(
        mean=np.repeat(extremes[:, None], D, axis=1),
        std=np.tile(np.array([0, 1e-45, 1e-38, 1e-30, 1, 1e30, largest], dtype=np.float32), (K, 1)),
        count=np.array([9, 9, 9, 9, 0]),
    )
    x = np.repeat(np.repeat(extremes, K)[:, None], D, axis=1)
    pred = np.tile(np.arange(K), len(extremes))
    s = z_sum(x, pred, model.mean, model.inverse_std)
    assert np.isfinite(s).all()
    for logit in (-np.inf, -largest, -1.0, 0.0, 1e-30, 5.0, largest, np.inf):
        score = gamma(np.full(len(x), logit), s, model.present[pred])
        assert np.isneginf(score[pred == 4]).all()
        assert np.isfinite(score[pred != 4]).all()
        assert np.all(np.sign(score[pred != 4]) == np.sign(logit))
        assert score.dtype == np.float64


@pytest.mark.parametrize("with_logits", [True, False])
def test_ghost_score_is_the_top_logit_over_the_distance(with_logits):
    model = make_model()
    count = model.count.copy()
    count[2] = 1
    model = Gaussians(model.mean, model.std, count)
    x, label = make_batch(200, 9, np.float32)
    head = Head(np.random.default_rng(3).normal(size=(K, D)).astype(np.float32), np.ones(K, np.float32))
    logits = head.logits(x)
    rows = Rows(label, logits.argmax(axis=1), x, logits if with_logits else None)
    s, score = ghost_score(rows, model, head)
    np.testing.assert_array_equal(s, z_sum(x, rows.pred, model.mean, model.inverse_std))
    np.testing.assert_allclose(score, np.where(rows.pred == 2, -np.inf, logits.max(axis=1) / s), rtol=1e-5)


def test_float64_embeddings_beyond_float32_stay_finite():
    s = z_sum(np.full((1, 2), 1e308), np.zeros(1, dtype=int), np.zeros((1, 2)), np.full((1, 2), 1e10))
    assert s[0] == np.finfo(np.float64).max


def test_a_sample_on_the_mean_keeps_the_sign_and_order_of_its_logit():
    score = gamma(np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), np.zeros(5), np.ones(5, dtype=bool))
    assert np.all(np.diff(score) > 0)
    assert score[2] == 0
    assert np.isfinite(score.astype(np.float32)).all()


def test_z_sum_and_gamma_refuse_what_they_cannot_use():
    model = make_model()
    x, pred = make_batch(10, 9)
    with pytest.raises(ValueError, match="shape"):
        z_sum(x[:, :3], pred, model.mean, model.inverse_std)
    with pytest.raises(ValueError, match="pred must lie"):
        z_sum(x, pred + K, model.mean, model.inverse_std)
    with pytest.raises(ValueError, match="integers"):
        z_sum(x, pred[:3], model.mean, model.inverse_std)
    with pytest.raises(ValueError, match="mean and inv_std"):
        z_sum(x, pred, model.mean, model.inverse_std[0])
    x[4, 2] = np.inf
    with pytest.raises(ValueError, match="row 4"):
        z_sum(x, pred, model.mean, model.inverse_std)
    with pytest.raises(ValueError, match="row 1 is NaN"):
        gamma(np.array([1.0, np.nan]), np.ones(2), np.ones(2, dtype=bool))
    assert z_sum(x[:0], pred[:0], model.mean, model.inverse_std).shape == (0,)


def test_growing_leaves_what_others_hold(rng: np.random.Generator) -> None:
    """Classes are appended in place where that can be done, never under the eyes of somebody who holds the array."""
    x = rng.normal(size=(40, 3))
    label = np.repeat([2, 3, 4, 5], 10)
    for held in (True, False):
        low, high = Accumulator.empty(2, 3, first_class=2), Accumulator.empty(2, 3, first_class=4)
        low.update(x[:20], label[:20])
        high.update(x[20:], label[20:])
        view = low.mean[0] if held else None
        low.merge(high)
        assert view is None or np.array_equal(view, low.mean[0])
        assert (low.first_class, low.stop_class) == (2, 6)
        for k in range(4):
            np.testing.assert_allclose(low.mean[k], x[10 * k : 10 * k + 10].mean(0), rtol=1e-12)
            np.testing.assert_allclose(low.m2[k], 9 * x[10 * k : 10 * k + 10].var(0, ddof=1), rtol=1e-12)
