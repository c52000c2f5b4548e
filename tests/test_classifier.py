"""The classifier of a service: the numbers of the score job, and everything torch may do with a module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from support import networks
from support.stores import Toy, write_store, write_toy_model

import ghost_ray
from ghost_ray import OpenSetClassifier
from ghost_ray.backbone import Backbone, load_backbone
from ghost_ray.config import ScoreConfig
from ghost_ray.errors import InputError
from ghost_ray.gaussians import Gaussians
from ghost_ray.jobs.score import run
from ghost_ray.model import write_threshold

NETWORK = "support.networks:small"


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return load_backbone(NETWORK, device="cpu")


@pytest.fixture(scope="module")
def images(backbone: Backbone) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(64, *backbone.input_size, generator=generator) + torch.linspace(-2, 2, 64)[:, None, None, None]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, backbone: Backbone, images: torch.Tensor) -> Path:
    """Gaussians of the network's own embeddings of random images, with a threshold in their middle."""
    place = tmp_path_factory.mktemp("classifier")
    embedding, logits = (t.numpy() for t in backbone.embed(images))
    toy = Toy(np.zeros_like(backbone.head.weight), backbone.head.weight, backbone.head.bias)
    described = {"name": NETWORK, "weights_sha256": backbone.weights_sha256}
    write_store(place / "store", embedding, None, toy, network=described)
    write_toy_model(place / "model", embedding, logits.argmax(1), toy, network=described)
    return place


@pytest.fixture(scope="module")
def classifier(model: Path, backbone: Backbone) -> OpenSetClassifier:
    return OpenSetClassifier.from_model(str(model / "model"), backbone, threshold=0.01)


def test_numbers_are_those_of_the_score_job(
    model: Path, backbone: Backbone, images: torch.Tensor, tmp_path: Path, local_ray: None
) -> None:
    options = {"gaussians": str(model / "model"), "store": str(model / "store"), "out": str(tmp_path / "s.parquet")}
    run(ScoreConfig.model_validate(options | {"accept_fpr": 0.5, "unknown": str(model / "store")}))
    table = pq.read_table(tmp_path / "s.parquet")
    service = OpenSetClassifier.from_model(str(model / "model"), backbone)
    with torch.inference_mode():
        prediction, gamma, accepted = service(images)
    np.testing.assert_array_equal(prediction, table["pred"])
    np.testing.assert_allclose(gamma, table["score"], rtol=1e-5)
    np.testing.assert_array_equal(accepted, table["accepted"])
    assert accepted.sum() == 32


def test_network_may_be_a_name_a_module_or_a_backbone(model: Path, images: torch.Tensor) -> None:
    module = networks.small()
    given = [NETWORK, module, load_backbone(NETWORK, device="cpu")]
    made = [OpenSetClassifier.from_model(str(model / "model"), n, threshold=0.0, device="cpu") for n in given]
    expected = made[0](images)
    for classifier in made[1:]:
        for found, wanted in zip(classifier(images), expected, strict=True):
            torch.testing.assert_close(found, wanted)
    assert module(images).shape == (64, networks.CLASSES), "the caller's module was cut"


@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_export_gives_the_same_for_any_batch(name: str, tmp_path: Path) -> None:
    import timm

    torch.manual_seed(0)
    backbone = load_backbone(timm.create_model(name, num_classes=5), device="cpu")
    shape = (5, backbone.dimensions)
    gaussians = Gaussians(np.zeros(shape, np.float32), np.ones(shape, np.float32), np.full(5, 9))
    classifier = OpenSetClassifier(backbone.body, backbone.linear(), gaussians, threshold=0.0)
    images = torch.randn(6, *backbone.input_size)
    batch = torch.export.Dim("batch", min=2, max=1024)
    program = torch.export.export(classifier, (images[:4],), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "classifier.pt2")
    exported = torch.export.load(tmp_path / "classifier.pt2").module()
    for size in (2, 6):
        for found, wanted in zip(exported(images[:size]), classifier(images[:size]), strict=True):
            torch.testing.assert_close(found, wanted)


def test_autocast_of_the_body_leaves_the_score_in_float32(classifier: OpenSetClassifier, images: torch.Tensor) -> None:
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        prediction, gamma, _ = classifier(images)
    assert gamma.dtype == torch.float32
    _, wanted, _ = classifier(images)
    same = prediction == classifier(images)[0]
    torch.testing.assert_close(gamma[same], wanted[same], rtol=0.1, atol=1e-3)


def test_state_survives_saving(classifier: OpenSetClassifier, model: Path, tmp_path: Path) -> None:
    torch.save(classifier.state_dict(), tmp_path / "state.pt")
    other = OpenSetClassifier.from_model(str(model / "model"), NETWORK, threshold=9.0, device="cpu")
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert float(other.threshold) == pytest.approx(0.01)
    assert not any(parameter.requires_grad for parameter in other.parameters())
    assert not other.training


def test_adversarial_rows_are_rejected_and_never_nan() -> None:
    body, head = torch.nn.Identity(), torch.nn.Linear(3, 2)
    head.load_state_dict({"weight": torch.eye(2, 3), "bias": torch.zeros(2)})
    gaussians = Gaussians(
        np.array([[1, 0, 5], [0, 0, 0]], np.float32), np.array([[1, 1, 0], [0, 0, 0]], np.float32), np.array([9, 1])
    )
    classifier = OpenSetClassifier(body, head, gaussians, threshold=-1e30)
    nan, inf = float("nan"), float("inf")
    rows = [[1, 0, 5], [0, 2, 0], [nan, 0, 0], [inf, 0, 0], [-1, -2, 0], [3e38, 1, 0], [2, 1, 7]]
    prediction, gamma, accepted = classifier(torch.tensor(rows))
    assert prediction.tolist()[:2] == [0, 1]
    assert not gamma.isnan().any()
    assert gamma[0] > 1e20, "on the mean: as known as can be"
    assert gamma[1:4].tolist() == [-inf, -inf, -inf], "no Gaussian, NaN, infinity"
    assert gamma[4] < 0
    assert gamma[6] == pytest.approx(2 / (1 + 1)), "the constant dimension adds nothing"
    assert accepted.tolist() == [True, False, False, False, True, True, True]


def test_another_network_is_refused_naming_both(model: Path) -> None:
    with pytest.raises(InputError, match=r"Small.*networks:small.*sha256.*but the model"):
        OpenSetClassifier.from_model(str(model / "model"), networks.other(), threshold=0.0)


def test_threshold_must_come_from_somewhere(model: Path, backbone: Backbone, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(model / "model", tmp_path / "model", ignore=shutil.ignore_patterns("thresholds.json"))
    with pytest.raises(InputError, match=r"no threshold stored.*give `threshold`"):
        OpenSetClassifier.from_model(str(tmp_path / "model"), backbone)
    write_threshold(str(tmp_path / "model"), {"threshold": 0.25, "rule": "threshold"})
    assert float(OpenSetClassifier.from_model(str(tmp_path / "model"), backbone).threshold) == 0.25


def test_public_name_is_lazy() -> None:
    assert ghost_ray.OpenSetClassifier is OpenSetClassifier
    assert "OpenSetClassifier" in dir(ghost_ray)
