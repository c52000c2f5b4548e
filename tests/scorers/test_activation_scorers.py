"""react and scale against pytorch-ood, which sees an embedding as a 1 × 1 feature map."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pytorch_ood.detector import SCALE, ReAct

from ghost_ray import scorers
from ghost_ray.rows import Head, Rows
from ghost_ray.scorers.react import from_ordered_bits, ordered_bits


def flat_head(head) -> torch.nn.Module:
    layer = torch.nn.Linear(head.weight.shape[1], head.weight.shape[0])
    layer.load_state_dict({"weight": torch.from_numpy(head.weight), "bias": torch.from_numpy(head.bias)})
    return torch.nn.Sequential(torch.nn.Flatten(), layer)


def maps(batch) -> torch.Tensor:
    return torch.from_numpy(batch.embedding)[:, :, None, None]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("percentile", [0, 37.3, 90, 100])
def test_react_equals_pytorch_ood(percentile, signed, network_of):
    network = network_of(signed=signed)
    theirs = ReAct(None, flat_head(network.head), percentile=percentile / 100)
    theirs.fit_feature_maps(maps(network.train), torch.from_numpy(network.train.label))
    scorer = scorers.create("react", percentile=percentile).fit(lambda: [network.train], network.head)
    assert scorer.threshold_ == pytest.approx(theirs.threshold, rel=1e-6)
    expected = -theirs.predict_feature_maps(maps(network.unknown)).detach().numpy()
    assert scorer.score(network.unknown) == pytest.approx(expected, rel=1e-5)


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 9), st.just(3)), elements=st.floats(width=32, allow_nan=False)),
    st.floats(0, 100),
)
def test_the_streamed_percentile_is_numpys(embedding, percentile):
    embedding = np.clip(embedding, -1e37, 1e37)
    n = len(embedding)
    batch = Rows(np.zeros(n, int), np.zeros(n, int), embedding, np.zeros((n, 2), np.float32))
    head = Head(np.zeros((2, 3), np.float32), np.zeros(2, np.float32))
    scorer = scorers.create("react", percentile=percentile)
    scorer.fit(lambda: [batch.take(np.array([i])) for i in range(n)], head)
    expected = np.percentile(embedding.astype(np.float64), percentile)
    assert scorer.threshold_ == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(st.floats(width=32, allow_nan=False), st.floats(width=32, allow_nan=False))
def test_ordered_bits_keep_the_order_and_come_back(a, b):
    x, y = (ordered_bits(raw) for raw in np.array([a, b], np.float32).view(np.uint32).tolist())
    assert (a < b) <= (x < y)
    assert from_ordered_bits(x) == a


@pytest.mark.parametrize("percentile", [0, 65, 85])
def test_scale_equals_pytorch_ood_on_features_without_sign(percentile, network):
    theirs = SCALE(None, flat_head(network.head), percentile=percentile / 100)
    expected = -theirs.predict_feature_maps(maps(network.unknown)).detach().numpy()
    scorer = scorers.create("scale", percentile=percentile).fit(lambda: [network.train], network.head)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert scorer.score(network.unknown) == pytest.approx(expected, rel=1e-4)


def test_scale_warns_once_of_signed_features_and_bounds_r(network_of, batch_of):
    """pytorch-ood does not bound r: there, a sum of the largest entries near zero gives infinity."""
    network = network_of(signed=True)
    scorer = scorers.create("scale").fit(lambda: [network.train], network.head)
    with pytest.warns(UserWarning, match="features ≥ 0"):
        scorer.score(network.known)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scorer.score(network.unknown)
    explosive = np.full((1, 12), -3.0)
    explosive[0, :2] = [1e-30, 0.0]
    score = scorer.score(batch_of(network.head, explosive, [-1]))
    bounded = explosive * np.exp(-6)
    assert score == pytest.approx(np.logaddexp.reduce(network.head.logits(bounded)[0]), rel=1e-5)
