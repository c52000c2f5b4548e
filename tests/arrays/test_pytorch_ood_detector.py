"""GHOST among the detectors of pytorch-ood, and its metrics beside OpenOOD's columns."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
import torch
from pytorch_ood.api import ModelNotSetException, RequiresFittingException
from pytorch_ood.metrics import OODMetrics
from support.toy_arrays import ToyArrays
from torch.utils.data import DataLoader, TensorDataset

import ghost_ray

ARRAYS = ToyArrays.make()
WEIGHT, BIAS = (torch.from_numpy(values) for values in ARRAYS.head)


def test_it_scores_images_through_their_pipeline_as_we_do_features() -> None:
    features, labels, _ = (torch.from_numpy(values) for values in ARRAYS.fit)
    outliers = torch.full((10,), -7)  # whatever is negative is an outlier there
    loader = DataLoader(
        TensorDataset(torch.cat([features, features[:10]])[:, :, None], torch.cat([labels, outliers])), batch_size=128
    )
    detector = ghost_ray.GhostDetector(torch.nn.Flatten(), WEIGHT, BIAS).fit(loader)
    by_features = ghost_ray.GhostDetector(None, WEIGHT, BIAS).fit_features(features, labels)
    strangers = torch.from_numpy(ARRAYS.unknown["near"][0])
    outlier = detector(strangers[:, :, None])
    torch.testing.assert_close(outlier, by_features.predict_features(strangers), rtol=1e-5, atol=0)
    gamma = ghost_ray.fit(*ARRAYS.fit).score(*ARRAYS.unknown["near"])
    np.testing.assert_allclose(outlier.numpy(), -gamma, rtol=1e-4)


def test_a_class_without_a_gaussian_stays_a_number() -> None:
    features, labels, _ = (torch.from_numpy(values) for values in ARRAYS.fit)
    detector = ghost_ray.GhostDetector(None, WEIGHT, BIAS).fit_features(features[labels > 0], labels[labels > 0])
    outlier = detector.predict_features(features[labels == 0])
    assert torch.isfinite(outlier).all()
    assert outlier.max() == torch.finfo(torch.float32).max


def test_what_it_lacks_is_said_as_there() -> None:
    detector = ghost_ray.GhostDetector(None, WEIGHT, BIAS)
    with pytest.raises(RequiresFittingException):
        detector.predict_features(torch.zeros(1, 12))
    with pytest.raises(ModelNotSetException):
        detector.fit([])


def test_openoods_columns_are_the_metrics_of_pytorch_ood() -> None:
    result = ghost_ray.evaluate(
        fit=ARRAYS.fit,
        known=ARRAYS.known,
        unknown=ARRAYS.unknown,
        methods=["ghost", "msp"],
        group={"nearood": ["near"], "all": ["near", "far"]},
        draw_size=100,
    )
    model = ghost_ray.fit(*ARRAYS.fit)
    rows = {row["dataset"]: row for row in csv.DictReader(io.StringIO(result.to_openood("ghost")))}
    assert list(rows) == ["near", "far", "nearood", "all"]
    known = model.score(ARRAYS.known[0], ARRAYS.known[2])
    for name, (features, logits) in ARRAYS.unknown.items():
        unknown = model.score(features, logits)
        scores = torch.from_numpy(-np.concatenate([known, unknown]))
        theirs = OODMetrics().update(scores, torch.cat([torch.zeros(400), -torch.ones(len(unknown))]).long()).compute()
        for ours, name_there in (
            ("FPR@95", "FPR95TPR"),
            ("AUROC", "AUROC"),
            ("AUPR_IN", "AUPR-IN"),
            ("AUPR_OUT", "AUPR-OUT"),
        ):
            assert float(rows[name][ours]) == pytest.approx(100 * theirs[name_there], abs=0.006)
        assert float(rows[name]["ACC"]) == pytest.approx(100 * result.closed_set_accuracy, abs=0.006)
    assert rows["nearood"] == {**rows["near"], "dataset": "nearood"}
    assert float(rows["all"]["AUROC"]) == pytest.approx(
        np.mean([float(rows[n]["AUROC"]) for n in ("near", "far")]), abs=0.011
    )
    with pytest.raises(ghost_ray.errors.InputError, match="is not one of ghost, msp"):
        result.to_openood("knn")
