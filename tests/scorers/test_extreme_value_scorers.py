"""openmax against pytorch-ood, evm against the paper's formulas, and the Weibull fit beneath both."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pytorch_ood.detector import OpenMax as TheirOpenMax
from scipy import stats

from ghost_ray import scorers
from ghost_ray.scorers._weibull import fit_weibull, weibull_exponent
from ghost_ray.scorers.evm import greedy_cover


@pytest.mark.parametrize("shape", [0.3, 1.0, 3.0, 80.0])
def test_weibull_fit_equals_scipy(shape):
    values = stats.weibull_min.rvs(shape, scale=2.5, size=(4, 50), random_state=3)
    shapes, scales = fit_weibull(values)
    for row, k, scale in zip(values, shapes, scales, strict=True):
        expected_shape, _, expected_scale = stats.weibull_min.fit(row, floc=0)
        assert (k, scale) == (pytest.approx(expected_shape, rel=1e-3), pytest.approx(expected_scale, rel=1e-3))
        reached, best = (
            stats.weibull_min.logpdf(row, c, scale=s).sum() for c, s in ((k, scale), (expected_shape, expected_scale))
        )
        assert reached >= best - 1e-9


def test_weibull_fit_of_equal_values_is_a_step():
    shape, scale = fit_weibull(np.full((1, 5), 3.0))
    assert np.exp(-weibull_exponent(np.array([2.99, 3.01]), shape, scale)) == pytest.approx([1, 0])


def test_openmax_equals_pytorch_ood(network):
    """Fitted there on the correct rows alone, since that library takes all it is given.

    It measures distances only to classes that some row of the batch is predicted as: here all are.
    """
    correct = network.train.take(network.train.correct)
    batch = network.known
    assert set(batch.pred) == set(range(5))
    theirs = TheirOpenMax(None, tailsize=20, alpha=3)
    theirs.fit_logits(torch.from_numpy(correct.logits).double(), torch.from_numpy(correct.label))
    expected = -theirs.predict_logits(torch.from_numpy(batch.logits).double()).numpy()
    scorer = scorers.create("openmax").fit(lambda: [network.train])
    assert scorer.score(batch) == pytest.approx(expected, rel=2e-3, abs=1e-6)


def test_openmax_equals_the_formula(network):
    train, batch = network.train, network.unknown
    scorer = scorers.create("openmax", tail=10, alpha=2).fit(lambda: [train])
    expected = []
    models = {}
    for k in range(5):
        own = train.logits[(train.label == k) & train.correct].astype(np.float64)
        tail = np.sort(np.linalg.norm(own - own.mean(0), axis=1))[-10:]
        models[k] = own.mean(0), tail[0], *(p[0] for p in fit_weibull(tail[None] - tail[0] + 10_000))
    for logits in batch.logits.astype(np.float64):
        revised, unknown = logits.copy(), 0.0
        for weight, k in zip((1.0, 0.5), np.argsort(-logits), strict=False):
            mean, smallest, shape, scale = models[k]
            moved = np.linalg.norm(logits - mean) - smallest + 10_000
            removed = logits[k] * weight * stats.weibull_min.cdf(moved, shape, scale=scale)
            revised[k] -= removed
            unknown += removed
        expected.append(-np.exp(unknown) / (np.exp(unknown) + np.exp(revised).sum()))
    assert scorer.score(batch) == pytest.approx(expected, rel=1e-8)


def test_openmax_takes_a_class_it_never_saw_as_unknown(network):
    train = network.train.take(network.train.label != 1)
    scorer = scorers.create("openmax").fit(lambda: [train])
    assert scorer.missing_.tolist() == [1]
    assert "1 class (1)" in scorer.notes()[0]
    confident = network.known.take(network.known.pred == 1)
    whole = scorers.create("openmax").fit(lambda: [network.train])
    assert (scorer.score(confident) <= whole.score(confident)).all()


def test_evm_equals_the_formula_without_reduction(network):
    """cover = 1 keeps every sample as an extreme vector."""
    scorer = scorers.create("evm", tail=15, cover=1.0).fit(lambda: [network.train])
    g = {
        name: b.embedding / np.linalg.norm(b.embedding.astype(np.float64), axis=1, keepdims=True)
        for name, b in (("train", network.train), ("unknown", network.unknown))
    }
    expected = np.empty(len(network.unknown))
    for i, (row, k) in enumerate(zip(g["unknown"], network.unknown.pred, strict=True)):
        best = 0.0
        for own in g["train"][network.train.label == k]:
            margins = np.sort(1 - g["train"][network.train.label != k] @ own)[:15] / 2
            shape, scale = (p[0] for p in fit_weibull(margins[None]))
            best = max(best, np.exp(-(((1 - row @ own) / scale) ** shape)))
        expected[i] = best
    assert scorer.score(network.unknown) == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_evm_keeps_fewer_vectors_that_still_cover_the_class(network):
    full = scorers.create("evm", cover=1.0).fit(lambda: [network.train])
    reduced = scorers.create("evm", cover=0.7).fit(lambda: [network.train])
    for k, model in reduced.models_.items():
        assert len(model.rows) < len(full.models_[k].rows)
        assert (model.inclusion(full.models_[k].rows) >= 0.7 - 1e-6).all()


def test_evm_says_that_negatives_are_sampled(network):
    scorer = scorers.create("evm", negatives=50).fit(lambda: [network.train])
    assert scorer.notes() == ["evm: negatives from a random 50 of 300 training samples"]
    assert scorers.create("evm").fit(lambda: [network.train]).notes() == []


def test_evm_without_other_classes_scores_unknown(network):
    train = network.train.take(network.train.label == 0)
    scorer = scorers.create("evm").fit(lambda: [train])
    assert np.isneginf(scorer.score(network.known)).all()
    assert "5 classes" in scorer.notes()[0]


def test_greedy_cover_takes_the_largest_first_and_leaves_none_out():
    covers = np.eye(6, dtype=bool)
    covers[2, :4] = True
    covers[5, 3:] = True
    assert greedy_cover(covers) == [2, 5]
