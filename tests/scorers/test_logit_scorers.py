"""msp, maxlogit and energy against pytorch-ood and plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pytorch_ood.detector import EnergyBased, MaxLogit, MaxSoftmax

from ghost_ray import scorers
from ghost_ray.rows import Rows
from ghost_ray.scorers._common import normalise


@pytest.mark.parametrize(
    ("name", "options", "detector"),
    [
        ("msp", {}, MaxSoftmax(None)),
        ("maxlogit", {}, MaxLogit(None)),
        ("energy", {}, EnergyBased(None)),
        ("energy", {"temperature": 2.5}, EnergyBased(None, t=2.5)),
    ],
)
def test_equals_pytorch_ood(name, options, detector, network):
    theirs = -detector.predict_logits(torch.from_numpy(network.unknown.logits).double()).numpy()
    scorer = scorers.create(name, **options).fit(lambda: [network.train])
    assert scorer.score(network.unknown) == pytest.approx(theirs, rel=1e-12)


def test_normalise_has_unit_rows_at_any_size_and_keeps_zero():
    rows = np.array([[3, 4], [3e38, 0], [1e-40, 0], [0, 0], [-2e30, 2e30]], np.float32)
    assert np.linalg.norm(normalise(rows), axis=1) == pytest.approx([1, 1, 1, 0, 1])


def test_msp_keeps_confident_rows_apart(network):
    """Where float32 says 1.0 for all, float64 still orders them."""
    logits = np.zeros((3, 4), np.float32)
    logits[:, 0] = [20, 25, 30]
    batch = Rows(np.zeros(3, int), np.zeros(3, int), np.zeros((3, 2), np.float32), logits)
    scores = scorers.create("msp").score(batch)
    assert scores[0] < scores[1] < scores[2] <= 1
