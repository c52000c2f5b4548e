"""ghost, ghost-gpd and ghost-full against formulas written out class by class."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.covariance import ledoit_wolf

from ghost_ray import scorers
from ghost_ray.rows import Rows
from ghost_ray.scorers.ghost_full import fit_ellipsoid
from ghost_ray.scorers.ghost_gpd import pareto_cdf


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


def test_ghost_gpd_equals_scipys_fit_of_gamma(network):
    scorer = scorers.create("ghost-gpd").fit(lambda: [network.train])
    gamma = scorers.create("ghost").fit(lambda: [network.train]).score(network.train)
    scores = scorer.score(network.unknown)
    by_hand = gamma_by_loop(network, network.unknown)
    for k in range(network.head.weight.shape[0]):
        own = gamma[(network.train.label == k) & network.train.correct]
        mine = network.unknown.pred == k
        expected = stats.genpareto.cdf(by_hand[mine], *stats.genpareto.fit(own))
        assert scores[mine] == pytest.approx(expected, abs=1e-4)
    assert len(scorer.fallback_) == 0


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
