"""mds, rmds and vim against pytorch-ood."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pytorch_ood.detector import RMD, Mahalanobis
from pytorch_ood.detector import ViM as TheirViM

from ghost_ray import scorers
from ghost_ray.rows import Head
from ghost_ray.scorers._moments import ClassMoments, whitening


def tensors(batch) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(batch.embedding), torch.from_numpy(batch.label)


def test_mds_equals_pytorch_ood_up_to_its_factor(network):
    """There Σ is a sum and not a mean over N rows, and the distance is halved: theirs · 2N = ours."""
    theirs = Mahalanobis(None).fit_features(*tensors(network.train))
    expected = -theirs.predict_features(tensors(network.unknown)[0]).numpy() * 2 * len(network.train)
    scorer = scorers.create("mds").fit(lambda: [network.train])
    assert scorer.score(network.unknown) == pytest.approx(expected, rel=1e-3)
    assert scorer.ridge_ == 0


def test_rmds_equals_pytorch_ood_up_to_its_factor(network):
    """There both covariances are sums and not means over N rows: theirs · N = ours."""
    theirs = RMD(None).fit_features(*tensors(network.train))
    expected = -theirs.predict_features(tensors(network.unknown)[0]).numpy() * len(network.train)
    scorer = scorers.create("rmds").fit(lambda: [network.train])
    assert scorer.score(network.unknown) == pytest.approx(expected, rel=1e-3, abs=1e-2)


def test_mds_equals_the_formula_in_float64(network):
    train = network.train
    x = train.embedding.astype(np.float64)
    means = np.stack([x[train.label == k].mean(0) for k in range(5)])
    within = x - means[train.label]
    precision = np.linalg.inv(within.T @ within / len(x))
    centred = network.unknown.embedding[:, None] - means
    expected = -np.einsum("bkd,de,bke->bk", centred, precision, centred).min(1)
    scorer = scorers.create("mds").fit(lambda: [train])
    assert scorer.score(network.unknown) == pytest.approx(expected, rel=1e-9)


def test_moments_keep_their_digits_far_from_zero(network, batch_of):
    """Σ ff ᵀ − N μμᵀ would have none left at an offset of a million."""
    shifted = batch_of(network.head, np.round(network.train.embedding * 8) / 8 + 1e6, network.train.label)
    near = batch_of(network.head, shifted.embedding - np.float32(1e6), network.train.label)
    far_state, near_state = ClassMoments(5, 12), ClassMoments(5, 12)
    for part in np.array_split(np.arange(len(shifted)), 7):
        far_state.update(shifted.take(part))
    near_state.update(near)
    assert far_state.scatter == pytest.approx(near_state.scatter, rel=1e-9, abs=1e-6)


def test_a_singular_covariance_gets_the_smallest_ridge_and_says_so(network, batch_of):
    embedding = network.train.embedding.copy()
    embedding[:, 4] = 1.0
    embedding[:, 5] = embedding[:, 6]
    train = batch_of(network.head, embedding, network.train.label)
    scorer = scorers.create("mds").fit(lambda: [train])
    assert 0 < scorer.ridge_ <= 1e-7
    assert "singular" in scorer.notes()[0]
    outside = embedding[:2].copy()
    outside[1, 4] = 2.0
    inside_score, outside_score = scorer.score(batch_of(network.head, outside, [-1, -1]))
    assert outside_score < 1e6 * inside_score


def test_whitening_of_nothing_is_the_identity():
    matrix, ridge = whitening(np.zeros((3, 3)))
    assert np.array_equal(matrix, np.eye(3))
    assert ridge > 0


@pytest.mark.parametrize("d", [1, 6, 11])
def test_vim_equals_pytorch_ood(d, network):
    """Theirs is float32 throughout, and a residual of one dimension is what little is left of large numbers."""
    weight, bias = torch.from_numpy(network.head.weight), torch.from_numpy(network.head.bias)
    theirs = TheirViM(None, d=d, w=weight, b=bias).fit_features(*tensors(network.train))
    expected = -theirs.predict_features(tensors(network.unknown)[0]).numpy()
    scorer = scorers.create("vim", d=d).fit(lambda: [network.train], network.head)
    assert scorer.alpha_ == pytest.approx(theirs.alpha, rel=1e-4)
    # Theirs is float32, and a score near 0 is the difference of two numbers around 20.
    assert scorer.score(network.unknown) == pytest.approx(expected, rel=1e-3, abs=3e-4 * float(np.abs(expected).max()))


@pytest.mark.parametrize(
    ("dim", "principal"), [(12, 6), (767, 383), (768, 512), (1280, 512), (2047, 512), (2048, 1000)]
)
def test_vim_chooses_its_dimension_as_its_authors_do(dim, principal):
    head = Head(np.ones((2, dim), np.float32), np.zeros(2, np.float32))
    assert scorers.create("vim").bind(2, dim, head).principal_ == principal


def test_vim_refuses_a_principal_space_without_residual(network):
    with pytest.raises(ValueError, match="d=12 leaves no residual of D=12"):
        scorers.create("vim", d=12).fit(lambda: [network.train], network.head)
