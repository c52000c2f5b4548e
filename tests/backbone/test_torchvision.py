"""torchvision's networks: the same pixels, embeddings and logits as torchvision's own model and transforms."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from support.backbones import refusal, saved, shaken
from torch import nn
from torchvision import models

from ghost_ray.backbone import PRESETS, load_backbone, published_accuracy
from ghost_ray.backbone.build import build
from ghost_ray.jobs.extract.decode import ResizeAndCrop, split_transform

PHOTOGRAPHS = [Image.fromarray(picture) for picture in load_sample_images().images]


def random_network(name: str, **options: object) -> nn.Module:
    torch.manual_seed(5)
    return shaken(models.get_model(name, weights=None, **options))


def embedding_and_logits(model: nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """By torchvision's own code: the last linear layer's input, and what the model returns."""
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    seen: list[torch.Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.inference_mode():
        logits = model(batch)
    hook.remove()
    return seen[-1], logits


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("torchvision:swin_t", models.Swin_T_Weights.IMAGENET1K_V1),
        ("torchvision:vit_b_16", models.ViT_B_16_Weights.IMAGENET1K_V1),
        ("torchvision:densenet121", models.DenseNet121_Weights.IMAGENET1K_V1),
    ],
)
def test_embeddings_and_logits_are_torchvisions(name: str, own: models.WeightsEnum, tmp_path: Path) -> None:
    model = random_network(name.partition(":")[2])
    backbone = load_backbone(name, saved(model, tmp_path / "w.safetensors"), device="cpu")
    batch = torch.stack([own.transforms()(picture) for picture in PHOTOGRAPHS])
    cut = split_transform(backbone.transform)
    prepared = torch.from_numpy(np.stack([cut.prepare(picture) for picture in PHOTOGRAPHS]))
    assert torch.equal(cut.finish(prepared), batch)
    embedding, logits = embedding_and_logits(model, batch)
    found_embedding, found_logits = backbone.embed(cut.finish(prepared))
    assert logits.std() > 0.01
    for found, expected in ((found_embedding, embedding), (found_logits, logits)):
        assert found.shape == expected.shape
        assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert backbone.classes == 1000


@pytest.mark.parametrize("name", ["swin_t", "vit_b_16", "densenet121", "resnet50", "efficientnet_b0", "inception_v3"])
def test_workers_get_bytes_from_torchvisions_transform(name: str) -> None:
    transform = models.get_model_weights(name).DEFAULT.transforms()
    cut = split_transform(transform)
    assert cut.dtype == np.uint8
    assert isinstance(cut.crop, ResizeAndCrop)
    for picture in PHOTOGRAPHS:
        finished = cut.finish(torch.from_numpy(cut.prepare(picture).copy())[None])[0]
        assert torch.equal(finished, transform(picture))


def test_a_transform_of_torchvision_that_cannot_be_cut_stays_whole() -> None:
    class ImageClassification(models.Swin_T_Weights.IMAGENET1K_V1.transforms.func):  # type: ignore[misc, name-defined]
        def forward(self, img: Image.Image) -> torch.Tensor:
            return super().forward(img) * 2

    transform = ImageClassification(crop_size=64)
    cut = split_transform(transform)
    assert cut.dtype == np.float32
    assert torch.equal(torch.from_numpy(cut.prepare(PHOTOGRAPHS[0])), transform(PHOTOGRAPHS[0]))


PAPER = {
    "swin-t": ("swin_t", 0.81474, (232, "bicubic")),
    "densenet-121": ("densenet121", 0.74434, (256, "bilinear")),
    "vit-b-16": ("vit_b_16", 0.81072, (256, "bilinear")),
}


@pytest.mark.parametrize("name", PAPER)
def test_presets_are_torchvisions_weights_with_their_accuracy(name: str) -> None:
    architecture, accuracy, (size, interpolation) = PAPER[name]
    weights = models.get_model_weights(architecture)["IMAGENET1K_V1"]
    assert PRESETS[name].architecture == f"torchvision:{architecture}:IMAGENET1K_V1"
    stated = weights.meta["_metrics"]["ImageNet-1K"]["acc@1"] / 100
    assert PRESETS[name].accuracy == published_accuracy(name) == pytest.approx(stated) == accuracy
    assert published_accuracy(f"torchvision:{architecture}") == pytest.approx(accuracy)
    transform = weights.transforms()
    assert (transform.resize_size, transform.interpolation.value) == ([size], interpolation)


def test_networks_without_a_stated_accuracy_have_none() -> None:
    assert published_accuracy("resnet50") is None
    assert published_accuracy("mae-h") == 0.86928


# --- weights ------------------------------------------------------------------------------------------------


def test_densenets_published_files_have_older_names(tmp_path: Path) -> None:
    """Dots before the numbers, and the serialisation of that time."""
    model = random_network("densenet121")
    older = {re.sub(r"(denselayer\d+\.(?:norm|conv))([12])", r"\1.\2", k): v for k, v in model.state_dict().items()}
    assert len(older.keys() - model.state_dict().keys()) > 300
    torch.save(older, tmp_path / "densenet121.pth", _use_new_zipfile_serialization=False)
    found = build("densenet-121", str(tmp_path / "densenet121.pth")).state_dict()
    torch.testing.assert_close(dict(found), dict(model.state_dict()), rtol=0, atol=0)


def test_a_head_of_another_size_is_taken_from_the_file(tmp_path: Path) -> None:
    model = random_network("mobilenet_v3_small", num_classes=7)
    backbone = load_backbone("torchvision:mobilenet_v3_small", saved(model, tmp_path / "w.safetensors"))
    assert backbone.classes == 7
    batch = torch.stack([backbone.transform(picture) for picture in PHOTOGRAPHS])
    torch.testing.assert_close(backbone.embed(batch)[1], embedding_and_logits(model, batch)[1], rtol=1e-5, atol=1e-5)


def test_googlenet_is_built_as_torchvision_builds_it_for_its_weights(tmp_path: Path) -> None:
    model = random_network("googlenet", transform_input=True, aux_logits=True, init_weights=False)
    backbone = load_backbone("torchvision:googlenet", saved(model, tmp_path / "w.safetensors"))
    batch = torch.stack([backbone.transform(picture) for picture in PHOTOGRAPHS])
    torch.testing.assert_close(backbone.embed(batch)[1], embedding_and_logits(model, batch)[1], rtol=1e-4, atol=1e-5)


def test_weights_for_larger_pictures_come_with_their_size(tmp_path: Path) -> None:
    weights = saved(models.vit_b_16(image_size=384), tmp_path / "w.safetensors")
    model = build("torchvision:vit_b_16:IMAGENET1K_SWAG_E2E_V1", weights)
    assert model.transform(PHOTOGRAPHS[0]).shape == (3, 384, 384)
    assert model.image_size == 384


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """torch's folder of downloads, empty, and no way to the internet."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


def test_published_weights_come_from_torchs_cache(
    cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = random_network("mobilenet_v3_small")
    own = models.MobileNet_V3_Small_Weights.IMAGENET1K_V1
    torch.save(model.state_dict(), cache / own.url.rsplit("/", 1)[1])
    found = load_backbone("torchvision:mobilenet_v3_small")
    assert (
        found.weights_sha256
        == load_backbone("torchvision:mobilenet_v3_small", saved(model, tmp_path / "w.safetensors")).weights_sha256
    )
    assert capfd.readouterr().out == ""


class Payload:
    def __reduce__(self) -> tuple:
        return Path.touch, (Path("unpickled"),)


def test_nothing_in_the_cache_is_unpickled(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = models.MobileNet_V3_Small_Weights.IMAGENET1K_V1
    torch.save({"classifier.3.weight": Payload()}, cache / own.url.rsplit("/", 1)[1])
    assert "cannot be loaded" in refusal("torchvision:mobilenet_v3_small")
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.usefixtures("cache")
def test_weights_that_cannot_be_downloaded(capfd: pytest.CaptureFixture[str]) -> None:
    message = refusal("swin-t")
    assert "'swin-t'" in message
    assert "published weights cannot be loaded" in message
    assert "https://download.pytorch.org/models/swin_t-704ceda3.pth" in message
    assert capfd.readouterr().out == ""


# --- names --------------------------------------------------------------------------------------------------


def test_wrong_names() -> None:
    assert "nearest: 'swin_t'" in refusal("torchvision:swin_tt")
    assert "is not a classifier of torchvision" in refusal("torchvision:fcn_resnet50")
    message = refusal("torchvision:vit_b_16:IMAGENET22K")
    assert "IMAGENET1K_V1, IMAGENET1K_SWAG_E2E_V1" in message


def test_networks_without_a_linear_head(tmp_path: Path) -> None:
    weights = saved(random_network("squeezenet1_1"), tmp_path / "w.safetensors")
    assert "no torch.nn.Linear" in refusal("torchvision:squeezenet1_1", weights)
