"""ghost, ghost-gpd and ghost-full against formulas written out class by class."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.covariance import ledoit_wolf

from ghost_ray import scorers
from ghost_ray.rows import Rows
from ghost_ray.scorers.ghost_full import fit_ellipsoid
from ghost_ray.scorers.ghost_gpd import fit_pareto, pareto_cdf


def gamma_by_loop(network, batch) -> np.ndarray:
    train = network.train
    result = np.full(len(batch), -np.inf)
    for k in range(network.head.weight.shape[0]):
        rows = train.embedding[(train.label == k) & (train.pred == k)].astype(np.float64)
        mean, std = rows.mean(0), rows.std(0, ddof=1)
        mine = batch.pred == k
        z = np.abs(batch.embedding[mine] - mean) / np.where(std > 0, std, np.inf)
        result[mine] = batch.logits[mine, k] / z.sum(1)
    return result


def test_ghost_equals_the_formula(network):
    scorer = scorers.create("ghost").fit(lambda: [network.train])
    for batch in (network.known, network.unknown):
        assert scorer.score(batch) == pytest.approx(gamma_by_loop(network, batch), rel=1e-5)
    assert scorer.notes() == []


def test_a_class_without_correct_samples_is_named_and_unknown(network):
    train = network.train.take(~((network.train.label == 2) & network.train.correct))
    for name in ("ghost", "ghost-full", "ghost-gpd"):
        scorer = scorers.create(name).fit(lambda: [train])
        scores = scorer.score(network.known)
        assert np.isneginf(scores[network.known.pred == 2]).all()
        assert np.isfinite(scores[network.known.pred != 2]).all()
        assert "1 class (2)" in scorer.notes()[0]


def best_pareto(values: np.ndarray) -> tuple[float, float, float, float]:
    """The most likely generalized Pareto distribution with a shape ≥ −1 and its log-likelihood, by Grimshaw's profile.

    With the location at the smallest value and θ = shape / scale, the best shape is mean log(1 + θ·excess).
    """
    excess, n = values - values.min(), len(values)
    largest = excess.max()
    theta = np.concatenate([-(1 - np.logspace(-14, -1e-4, 20_000)), np.logspace(-6, 4, 5_000)]) / largest
    shape = np.log1p(np.outer(theta, excess)).mean(axis=1)
    likelihood = np.where(shape >= -1, -n * np.log(shape / theta) - n * shape - n, -np.inf)
    at = int(likelihood.argmax())
    uniform = -n * np.log(largest)
    if uniform > likelihood[at]:
        return -1.0, values.min(), largest, uniform
    return shape[at], values.min(), shape[at] / theta[at], likelihood[at]


def correct_gamma(network) -> dict[int, np.ndarray]:
    gamma = scorers.create("ghost").fit(lambda: [network.train]).score(network.train)
    return {k: gamma[(network.train.label == k) & network.train.correct] for k in range(len(network.head.bias))}


@pytest.mark.parametrize(("seed", "per_class"), [(0, 60), (1, 60), (0, 400)])
def test_ghost_gpd_is_the_most_likely_pareto_of_gamma(network_of, seed, per_class):
    network = network_of(seed=seed, per_class=per_class)
    scorer = scorers.create("ghost-gpd").fit(lambda: [network.train])
    scores = scorer.score(network.unknown)
    by_hand = gamma_by_loop(network, network.unknown)
    for k, own in correct_gamma(network).items():
        *best, likelihood = best_pareto(own)
        reached = stats.genpareto.logpdf(own, *scorer.parameters_[k]).sum()
        assert reached == pytest.approx(likelihood, abs=0.01)
        # Nor does scipy find a better one from any other start.
        for shape in (-1.5, -0.7, 0.0, 0.3, 2.0):
            theirs = stats.genpareto.fit(own, shape, loc=own.min() - 0.01 * np.ptp(own), scale=own.std())
            assert theirs[0] < -1 or stats.genpareto.logpdf(own, *theirs).sum() <= reached + 0.01
        mine = network.unknown.pred == k
        assert scores[mine] == pytest.approx(stats.genpareto.cdf(by_hand[mine], *best), abs=0.01)
    assert len(scorer.fallback_) == 0


@pytest.mark.parametrize("size", [40, 443])
def test_the_pareto_fit_does_not_turn_on_the_last_digit(size, rng):
    for _ in range(5):
        gamma = 1 / (3 + rng.gamma(20, 0.3, size))
        grid = np.linspace(gamma.min(), gamma.max(), 100)
        fitted = stats.genpareto.cdf(grid, *fit_pareto(gamma))
        moved = stats.genpareto.cdf(grid, *fit_pareto(gamma * (1 + 1e-8 * rng.standard_normal(size))))
        assert fitted == pytest.approx(moved, abs=1e-3)
        scaled = fit_pareto(gamma * 1e-6)
        assert stats.genpareto.cdf(grid * 1e-6, *scaled) == pytest.approx(fitted, abs=1e-9)


def test_gamma_that_gather_at_the_top_are_uniform_and_equal_ones_have_no_fit():
    """Below a shape of −1 the likelihood grows without end."""
    gamma = 1 - np.linspace(0.01, 1, 50) ** 3
    assert fit_pareto(gamma).tolist() == [-1, gamma.min(), np.ptp(gamma)]
    assert fit_pareto(np.full(10, 3.0)) is None


def test_ghost_gpd_uses_the_prediction_where_the_top_logit_is_negative(network):
    """An argmax over γ in a zero-filled matrix would name another class."""
    known = network.known
    low = Rows(known.label, known.pred, known.embedding, known.logits - 100)
    scorer = scorers.create("ghost-gpd").fit(lambda: [network.train])
    shape, location, scale = scorer.parameters_[low.pred].T
    expected = stats.genpareto.cdf(gamma_by_loop(network, low), shape, location, scale)
    assert scorer.score(low) == pytest.approx(expected)


def test_ghost_gpd_falls_back_to_the_median_fit_and_names_the_class(network):
    few = np.flatnonzero((network.train.label == 3) & network.train.correct)[3:]
    train = network.train.take(np.setdiff1d(np.arange(len(network.train)), few))
    scorer = scorers.create("ghost-gpd").fit(lambda: [train])
    assert scorer.fallback_.tolist() == [3]
    others = np.delete(scorer.parameters_, 3, axis=0)
    assert scorer.parameters_[3] == pytest.approx(np.median(others, axis=0))
    assert "1 class (3) without a Pareto fit" in scorer.notes()[0]


def test_ghost_gpd_without_any_fit_is_refused(network):
    one_a_class = network.train.take(np.unique(network.train.label, return_index=True)[1])
    with pytest.raises(ValueError, match="no class has 5 correctly classified"):
        scorers.create("ghost-gpd").fit(lambda: [one_a_class])


@pytest.mark.parametrize("shape", [-2.0, -0.5, -1e-14, 0.0, 1e-14, 0.3, 4.0])
def test_pareto_cdf_equals_scipy(shape):
    x = np.r_[np.linspace(-3, 8, 60), 1e9, -1e300]
    one = np.ones_like(x)
    expected = stats.genpareto.cdf(x, shape, 0.5, 1.7)
    assert pareto_cdf(x, shape * one, 0.5 * one, 1.7 * one) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("rows", "dim"), [(8, 30), (30, 30), (31, 30), (200, 30), (3, 2)])
def test_ellipsoid_equals_scikit_learns_ledoit_wolf(rows, dim):
    rng = np.random.default_rng(rows)
    x = (rng.normal(size=(rows, dim)) @ rng.normal(size=(dim, dim)) + 3).astype(np.float32)
    covariance, _ = ledoit_wolf(x.astype(np.float64))
    centred = rng.normal(size=(20, dim)) * 5
    expected = np.einsum("nd,nd->n", centred @ np.linalg.inv(covariance), centred)
    fitted = fit_ellipsoid(x)
    query = (centred + x.mean(0, dtype=np.float64)).astype(np.float32)
    assert fitted.squared_distance(query) == pytest.approx(expected, rel=1e-4)
    assert fitted.axes.shape[1] <= min(rows - 1, dim)


def test_equal_samples_have_no_ellipsoid():
    assert fit_ellipsoid(np.ones((5, 3), np.float32)) is None
    assert fit_ellipsoid(np.ones((1, 3), np.float32)) is None


def test_ghost_full_equals_the_formula(network):
    scorer = scorers.create("ghost-full").fit(lambda: [network.train])
    scores = scorer.score(network.unknown)
    train = network.train
    for k in range(network.head.weight.shape[0]):
        rows = train.embedding[(train.label == k) & train.correct].astype(np.float64)
        precision = np.linalg.inv(ledoit_wolf(rows)[0])
        mine = network.unknown.pred == k
        centred = network.unknown.embedding[mine] - rows.mean(0)
        distance = np.sqrt(np.einsum("nd,nd->n", centred @ precision, centred))
        assert scores[mine] == pytest.approx(network.unknown.logits[mine, k] / distance, rel=1e-5)
