"""Shapiro–Wilk against scipy, Holm against statsmodels, and what must hold whatever the data."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from statsmodels.stats.multitest import multipletests

from ghost_ray.normality import HolmFamily, holm, shapiro_wilk, test_columns
from ghost_ray.normality.royston import weights

KINDS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "uniform": lambda rng, n: rng.uniform(size=n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "t": lambda rng, n: rng.standard_t(3, size=n),
    "ties": lambda rng, n: np.round(2 * rng.standard_normal(n)),
    "two values": lambda rng, n: np.append(rng.integers(0, 2, n - 2), [0, 1]).astype(float),
    "one outlier": lambda rng, n: np.append(np.zeros(n - 1), 1.0),
    "offset": lambda rng, n: 1e6 + rng.standard_normal(n),
    "large": lambda rng, n: 1e30 * rng.standard_normal(n),
    "quantiles": lambda rng, n: stats.norm.ppf((np.arange(n) + 0.5) / n),
}


def scipy_shapiro(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.array([stats.shapiro(column) for column in x.T.astype(np.float64)]).T


def assert_same_tests(actual, expected):
    (W, p), (scipy_W, scipy_p) = actual, expected
    np.testing.assert_allclose(W, scipy_W, rtol=0, atol=1e-8)
    negligible = (p < 1e-15) & (scipy_p < 1e-15)
    np.testing.assert_allclose(p[~negligible], scipy_p[~negligible], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lengths", [range(3, 101), range(101, 201), [333, 500, 1000, 1300, 2500, 4999, 5000]])
def test_equals_scipy(lengths, dtype):
    rng = np.random.default_rng(0)
    for n in lengths:
        x = np.stack([make(rng, n) for make in KINDS.values()], axis=1).astype(dtype)
        expected = scipy_shapiro(x)
        expected[:, np.ptp(x, axis=0) == 0] = 1.0  # scipy warns and says the same
        assert_same_tests(shapiro_wilk(x), expected)
        assert_same_tests([t.numpy() for t in shapiro_wilk(torch.from_numpy(x))], expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [3, 7, 50, 400])
def test_does_not_depend_on_the_unit(n, dtype):
    """A power of two changes no digit; scipy itself takes a range of 1e-20 for zero."""
    x = np.random.default_rng(1).standard_normal((n, 20)).astype(dtype)
    expected = shapiro_wilk(x)
    exponents = [-100, -70, -1, 3, 100] if dtype == np.float32 else [-1000, -500, -100, 500, 1000]
    for exponent in exponents:
        for scaled in (np.ldexp(x, exponent), torch.from_numpy(np.ldexp(x, exponent))):
            np.testing.assert_allclose(shapiro_wilk(scaled), expected, rtol=1e-9)


def test_extremes_of_float64_neither_overflow_nor_vanish():
    """The range of the first is not a float64, the squares of neither are."""
    unit = np.random.default_rng(11).uniform(-1, 1, size=(60, 1))
    unit[:2, 0] = 1, -1
    small = np.round(1e6 * unit)
    for x, expected in [(unit * np.finfo(np.float64).max, unit), (small * 5e-324, small)]:
        for convert in (np.asarray, torch.from_numpy):
            np.testing.assert_allclose(shapiro_wilk(convert(x)), shapiro_wilk(expected), rtol=1e-9)


samples = hnp.arrays(
    np.float64,
    st.tuples(st.integers(3, 40), st.integers(1, 4)),
    elements=st.integers(-(2**20), 2**20).map(float),
)


@given(samples, st.integers(-(2**30), 2**30), st.sampled_from([0.125, 1.0, 4096.0]), st.randoms())
@settings(max_examples=150, deadline=None)
def test_invariant_under_shift_scale_and_order(x, shift, scale, random):
    """Integers up to 2^32 shift and scale without rounding, so the test itself adds no error."""
    W, p = shapiro_wilk(x)
    rows = list(range(len(x)))
    random.shuffle(rows)
    assert np.all((W > 0) & (W <= 1) & (p >= 0) & (p <= 1))
    np.testing.assert_allclose(shapiro_wilk((x[rows] + shift) * scale), (W, p), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(shapiro_wilk(-x), (W, p), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("n", [3, 4, 5, 6, 11, 12, 50, 1301])
def test_weights_are_antisymmetric_and_unit_length(n):
    a, squares = weights(n)
    np.testing.assert_array_equal(a, -a[::-1])
    assert np.all(np.diff(a) >= 0)
    assert squares == pytest.approx(1.0, abs=1e-12)
    assert weights(n) is weights(n)


def test_one_column_does_not_depend_on_its_neighbours_or_the_layout():
    x = np.random.default_rng(2).standard_normal((130, 300)).astype(np.float32)
    W, p = shapiro_wilk(x)
    np.testing.assert_array_equal(shapiro_wilk(np.asfortranarray(x)), (W, p))
    np.testing.assert_array_equal(shapiro_wilk(x[:, 200:]), (W[200:], p[200:]))
    np.testing.assert_array_equal(shapiro_wilk(x[:, ::7]), (W[::7], p[::7]))


def test_input_is_left_alone_and_may_be_read_only():
    x = np.random.default_rng(3).standard_normal((20, 3)).astype(np.float32)
    before = x.copy()
    x.flags.writeable = False
    shapiro_wilk(x)
    np.testing.assert_array_equal(x, before)


def test_other_real_types_are_converted():
    x = np.random.default_rng(4).integers(0, 100, size=(30, 4))
    np.testing.assert_array_equal(shapiro_wilk(x), shapiro_wilk(x.astype(np.float64)))
    np.testing.assert_array_equal(shapiro_wilk(torch.from_numpy(x)), shapiro_wilk(torch.from_numpy(x).double()))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_refuses_what_is_not_finite(bad, convert):
    x = np.random.default_rng(5).standard_normal((40, 200)).astype(np.float32)
    x[17, 150] = bad
    with pytest.raises(ValueError, match="column 150"):
        shapiro_wilk(convert(x))


def test_refuses_shapes_and_types_it_cannot_test():
    with pytest.raises(ValueError, match="at least 3"):
        shapiro_wilk(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="shape"):
        shapiro_wilk(np.zeros(10))
    for x in (np.zeros((5, 2), dtype=complex), torch.zeros((5, 2), dtype=torch.complex64)):
        with pytest.raises(ValueError, match="real"):
            shapiro_wilk(x)
    assert shapiro_wilk(np.zeros((5, 0)))[0].shape == (0,)


def test_says_when_p_is_beyond_its_calibration():
    x = np.random.default_rng(6).standard_normal((5001, 2))
    with pytest.warns(UserWarning, match="5000"):
        tests = shapiro_wilk(x)
    assert_same_tests(tests, scipy_shapiro(x))


def test_degenerate_columns_are_told_apart():
    x = np.random.default_rng(7).standard_normal((50, 5)).astype(np.float32)
    x[:, 1] = 3.0
    x[:, 3] = np.where(np.arange(50) % 2, 0.0, -0.0)
    result = test_columns(x)
    assert result.degenerate.tolist() == [False, True, False, True, False]
    assert result.W[1] == result.p[3] == 1.0
    np.testing.assert_array_equal((result.W, result.p), shapiro_wilk(x))
    nearly = np.full((50, 1), 1.0, dtype=np.float32)
    nearly[9] = np.nextafter(np.float32(1), np.float32(2))
    assert not test_columns(nearly).degenerate[0]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_too_few_samples_are_degenerate(n):
    result = test_columns(np.arange(3.0 * n).reshape(n, 3))
    assert result.degenerate.all()
    assert (result.W == 1).all()
    assert (result.p == 1).all()
    if n:
        with pytest.raises(ValueError, match="NaN"):
            test_columns(np.full((n, 3), np.nan))


def test_p_is_uniform_on_normal_data():
    _, p = shapiro_wilk(np.random.default_rng(8).standard_normal((200, 20_000)).astype(np.float32))
    assert stats.kstest(p, "uniform").statistic < 0.02


def test_torch_is_not_imported_for_arrays():
    code = (
        "import sys, numpy; from ghost_ray.normality import shapiro_wilk;"
        "shapiro_wilk(numpy.eye(4)); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


p_values = hnp.arrays(
    np.float64,
    st.integers(1, 60),
    elements=st.one_of(st.floats(0, 1), st.floats(0, 0.01), st.sampled_from([0.0, 1e-19, 0.001, 0.5, 1.0])),
)


def by_statsmodels(p, alpha):
    """Its answer without the garbage collection it makes: of all objects frozen there is nothing to collect."""
    gc.freeze()
    try:
        return multipletests(p, alpha, method="holm")[:2]
    finally:
        gc.unfreeze()


def in_parts(p, alpha):
    """Holm's answer from the code for families that are asked for in parts."""
    family = HolmFamily(p.copy(), alpha)
    rejected, adjusted = zip(*(family(part) for part in np.array_split(p, 3)), strict=True)
    return np.concatenate(rejected), np.concatenate(adjusted)


@given(p_values, st.sampled_from([0.001, 0.05, 0.5]))
@settings(max_examples=60, deadline=None)
def test_holm_in_parts_equals_statsmodels(p, alpha):
    for found, expected in zip(in_parts(p, alpha), by_statsmodels(p, alpha), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("share", [0.0, 0.03, 0.4, 0.6, 0.97, 1.0])
def test_holm_of_a_large_family_equals_statsmodels(share):
    """More than one chunk of ranks, and every way of choosing which ranks to sort."""
    rng = np.random.default_rng(9)
    m = 2_500_000
    p = np.where(rng.random(m) < share, 10.0 ** rng.uniform(-20, -4, m), rng.random(m))
    for found, expected in zip(in_parts(p, 0.05), by_statsmodels(p, 0.05), strict=True):
        np.testing.assert_array_equal(found, expected)


@given(p_values, st.randoms())
@settings(max_examples=50, deadline=None)
def test_holm_in_parts_moves_with_its_input(p, random):
    rows = list(range(len(p)))
    random.shuffle(rows)
    rejected, adjusted = in_parts(p, 0.05)
    np.testing.assert_array_equal(in_parts(p[rows], 0.05)[0], rejected[rows])
    np.testing.assert_array_equal(in_parts(p[rows], 0.05)[1], adjusted[rows])
    assert np.all(adjusted >= p)


def test_holm_at_once_is_holm_in_parts():
    p = np.random.default_rng(4).random(500) ** 4
    before = p.copy()
    for found, expected in zip(holm(p, 0.05), in_parts(p, 0.05), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(p, before)


@pytest.mark.parametrize("correct", [holm, in_parts])
def test_holm_of_nothing_and_of_nonsense(correct):
    rejected, adjusted = correct(np.empty(0), 0.05)
    assert rejected.shape == adjusted.shape == (0,)
    for p in ([0.1, np.nan], [-0.1, 0.5], [0.5, 1.1]):
        with pytest.raises(ValueError, match="between 0 and 1"):
            correct(np.array(p), 0.05)
    with pytest.raises(ValueError, match="alpha"):
        correct(np.array([0.1]), 0.0)
    with pytest.raises(ValueError, match="shape"):
        correct(np.zeros((2, 2)), 0.05)
