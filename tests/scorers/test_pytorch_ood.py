"""The adapter to pytorch-ood."""

from __future__ import annotations

import builtins
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from pytorch_ood import detector

from ghost_ray import scorers
from ghost_ray.jobs.evaluate.evaluate_plan import named_methods

ROOT = Path(__file__).parents[2]

SAME = [
    ("MaxSoftmax", "msp", {}),
    ("EnergyBased", "energy", {}),
    ("KNN", "knn", {}),
    ("NNGuide", "nnguide", {"k": 10, "fraction": 1.0}),
    ("ReAct", "react", {}),
]


@pytest.mark.parametrize(("theirs", "ours", "options"), SAME)
def test_a_detector_of_each_kind_agrees_with_our_own(theirs, ours, options, network):
    adapted = scorers.create(f"pytorch-ood:{theirs}").fit(lambda: [network.train], network.head)
    own = scorers.create(ours, **options).fit(lambda: [network.train], network.head)
    assert adapted.score(network.unknown) == pytest.approx(own.score(network.unknown), rel=1e-4, abs=1e-5)


IN_THE_DOCS = re.findall(r"`(pytorch-ood:[^`]+)` \|$", (ROOT / "docs/coming-from.md").read_text(), re.M)


@pytest.mark.parametrize("method", [*IN_THE_DOCS, "pytorch-ood:Entropy"])
def test_what_that_library_has_we_have(method, network):
    (scorer,) = named_methods([method]).values()
    scorer.fit(lambda: [network.train], network.head)
    scores = scorer.score(network.known)
    assert np.isfinite(scores).all()
    assert np.ptp(scores) > 0
    assert scorer.name == method


def test_the_docs_name_their_detectors():
    named = {method.split(":")[1] for method in IN_THE_DOCS}
    assert named >= {"GEN", "SHE", "DICE", "ASH", "KLMatching", "fDBD", "NCI", "VRA", "LTS", "PNML", "GMM"}


def test_gen_is_the_librarys_own_negated(network):
    theirs = detector.GEN(None, gamma=0.2, M=3).predict_logits(torch.from_numpy(network.known.logits)).numpy()
    adapted = scorers.create("pytorch-ood:GEN", gamma=0.2, M=3).fit(lambda: [network.train])
    assert adapted.score(network.known) == pytest.approx(-theirs)


def test_a_fitted_detector_sees_a_sample_and_says_so(network):
    scorer = scorers.create("pytorch-ood:KNN", k=5, sample_rows=40).fit(lambda: [network.train], network.head)
    assert scorer.detector_.knn.n_samples_fit_ == 40
    assert scorer.notes() == ["pytorch-ood:KNN: fitted on a random 40 of 300 training samples"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("GNE", {}, "nearest: 'GEN'"),
        ("ODIN", {}, "is not a detector of logits or features"),
        ("GEN", {"gama": 1}, "has no option 'gama'; nearest: 'gamma'; options: model, gamma, M"),
        ("DICE", {}, "needs the option 'p'"),
    ],
)
def test_what_cannot_be_made_is_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        scorers.create(f"pytorch-ood:{name}", **options)


def test_a_detector_that_needs_the_head_says_so(network):
    with pytest.raises(ValueError, match="pytorch-ood:SHE needs the network's linear head"):
        scorers.create("pytorch-ood:SHE").fit(lambda: [network.train])


def test_rows_a_detector_cannot_be_fitted_on_are_named(network):
    train = network.train.take(network.train.label != 2)
    with pytest.raises(
        ValueError,
        match="pytorch-ood:SHE cannot be fitted on these rows: AssertionError; it may need rows of every class",
    ):
        scorers.create("pytorch-ood:SHE").fit(lambda: [train], network.head)


def test_without_the_library_the_pip_command_is_named(monkeypatch):
    whole_import = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("pytorch_ood"):
            raise ImportError(name)
        return whole_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"pip install 'ghost-ray\[pytorch-ood\]'"):
        scorers.create("pytorch-ood:GEN")
