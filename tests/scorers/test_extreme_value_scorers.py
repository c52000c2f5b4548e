"""openmax against pytorch-ood, evm against libMR's formulas, and the Weibull fit beneath both."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pytorch_ood.detector import OpenMax as TheirOpenMax
from scipy import stats

from ghost_ray import scorers
from ghost_ray.rows import Rows
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


@pytest.mark.parametrize("shift", [10_000, 1])
def test_openmax_equals_the_formula(network, shift):
    train, batch = network.train, network.unknown
    scorer = scorers.create(f"openmax:tail=10:alpha=2:shift={shift}").fit(lambda: [train])
    expected = []
    models = {}
    for k in range(5):
        own = train.logits[(train.label == k) & train.correct].astype(np.float64)
        tail = np.sort(np.linalg.norm(own - own.mean(0), axis=1))[-10:]
        models[k] = own.mean(0), tail[0], *stats.weibull_min.fit(tail - tail[0] + shift, floc=0)[::2]
    for logits in batch.logits.astype(np.float64):
        revised, unknown = logits.copy(), 0.0
        for weight, k in zip((1.0, 0.5), np.argsort(-logits), strict=False):
            mean, smallest, shape, scale = models[k]
            moved = np.linalg.norm(logits - mean) - smallest + shift
            removed = logits[k] * weight * stats.weibull_min.cdf(moved, shape, scale=scale)
            revised[k] -= removed
            unknown += removed
        expected.append(-np.exp(unknown) / (np.exp(unknown) + np.exp(revised).sum()))
    assert scorer.score(batch) == pytest.approx(expected, rel=1e-3)


def test_the_shift_of_openmax_matters_and_is_positive(network):
    one, many = (scorers.create("openmax", shift=s).fit(lambda: [network.train]) for s in (1, 10_000))
    assert np.abs(one.score(network.unknown) - many.score(network.unknown)).max() > 0.01
    assert many.score(network.unknown).tobytes() == (
        scorers.create("openmax").fit(lambda: [network.train]).score(network.unknown).tobytes()
    )
    for shift in (0, -1, float("inf")):
        with pytest.raises(ValueError, match="shift must be above 0"):
            scorers.create("openmax", shift=shift)


def test_openmax_takes_a_class_it_never_saw_as_unknown(network):
    train = network.train.take(network.train.label != 1)
    scorer = scorers.create("openmax").fit(lambda: [train])
    assert scorer.missing_.tolist() == [1]
    assert "1 class (1)" in scorer.notes()[0]
    confident = network.known.take(network.known.pred == 1)
    whole = scorers.create("openmax").fit(lambda: [network.train])
    assert (scorer.score(confident) <= whole.score(confident)).all()


def directions(batch) -> np.ndarray:
    return batch.embedding / np.linalg.norm(batch.embedding.astype(np.float64), axis=1, keepdims=True)


def inclusion(network, k: int, tail: int = 100) -> tuple[np.ndarray, list[stats.rv_continuous], np.ndarray]:
    """The samples of a class, and for each what libMR's FitLow makes of its margins: a Weibull distribution and r.

    The tail smallest margins m, turned over and moved so that the largest lies at 1: t = 1 + max(m) − m.
    """
    g = directions(network.train)
    own, others = g[network.train.label == k], g[network.train.label != k]
    fits, reach = [], []
    for row in own:
        margins = np.sort(0.5 * (1 - others @ row))[:tail]
        shape, _, scale = stats.weibull_min.fit(1 + margins.max() - margins, floc=0)
        fits.append(stats.weibull_min(shape, scale=scale))
        reach.append(1 + margins.max())
    return own, fits, np.array(reach)


def psi(rows: np.ndarray, own: np.ndarray, fits: list[stats.rv_continuous], reach: np.ndarray) -> np.ndarray:
    """Ψ_i of every row [n, m]; the Weibull CDF is 0 below 0."""
    distance = 1 - rows @ own.T
    return np.stack([fit.cdf(r - d) for fit, r, d in zip(fits, reach, distance.T, strict=True)], axis=1)


@pytest.mark.parametrize("all_classes", [False, True])
def test_evm_equals_libmrs_formula_without_reduction(network, all_classes):
    """cover = 1 keeps every sample as an extreme vector."""
    scorer = scorers.create(f"evm:tail=15:cover=1:all_classes={str(all_classes).lower()}").fit(lambda: [network.train])
    for batch in (network.known, network.unknown):
        by_class = np.stack([psi(directions(batch), *inclusion(network, k, 15)).max(axis=1) for k in range(5)], axis=1)
        expected = by_class.max(axis=1) if all_classes else by_class[np.arange(len(batch)), batch.pred]
        assert -np.expm1(-np.exp(scorer.score(batch))) == pytest.approx(expected, rel=1e-2, abs=1e-4)


def test_evm_never_rounds_to_ties(network_of, batch_of):
    """Ψ itself is 1 in float64 for many rows near a sample, and 0 for many far ones."""
    network = network_of(classes=3, dim=64, per_class=150, signed=True)
    scorer = scorers.create("evm").fit(lambda: [network.train])
    rng = np.random.default_rng(0)
    centre = network.train.embedding[0].astype(np.float64)
    away = rng.normal(size=(200, 64))
    away -= np.outer(away @ centre, centre) / (centre @ centre)
    rows = centre + away * np.linspace(0, 0.3, 200)[:, None]
    batch = batch_of(network.head, rows, np.full(200, -1))
    scores = scorer.score(batch)
    assert np.isfinite(scores).all()
    psi_itself = -np.expm1(-np.exp(scores))
    assert len(np.unique(scores)) > 190 > 2 * len(np.unique(psi_itself))


def test_evm_scores_minus_infinity_beyond_the_reach_of_every_vector(network, batch_of):
    scorer = scorers.create("evm").fit(lambda: [network.train])
    opposite = batch_of(network.head, -network.train.embedding[:5], np.full(5, -1))
    opposite = Rows(opposite.label, network.train.pred[:5], opposite.embedding, opposite.logits, opposite.row_id)
    assert np.isneginf(scorer.score(opposite)).all()


def test_evm_keeps_fewer_vectors_that_still_cover_the_class(network):
    full = scorers.create("evm", cover=1.0).fit(lambda: [network.train])
    reduced = scorers.create("evm", cover=0.7).fit(lambda: [network.train])
    for k, model in reduced.models_.items():
        assert len(model.rows) < len(full.models_[k].rows)
        own, fits, reach = inclusion(network, k)
        kept = (own @ model.rows.T).argmax(axis=0)
        assert (psi(own, own[kept], [fits[i] for i in kept], reach[kept]).max(axis=1) >= 0.7 - 1e-3).all()


def test_evm_does_not_depend_on_the_order_of_the_training_rows(network):
    """Rows get the identity of their place, as those of arrays do."""
    train = network.train
    doubled = np.concatenate([np.arange(len(train)), np.arange(0, len(train), 3)])  # equal rows tie
    scores = set()
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(doubled)
        rows = train.take(order)
        rows = Rows(rows.label, rows.pred, rows.embedding, rows.logits, np.arange(len(rows), dtype=np.uint64))
        scorer = scorers.create("evm").fit(lambda rows=rows: [rows])
        scores.add(scorer.score(network.unknown).tobytes())
    assert len(scores) == 1


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
