"""Networks of one's own, named as ``package.module:factory``: cut where they may be, refused with the reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.backbones import batch_for, refusal, saved

from ghost_ray.backbone import load_backbone

FACTORIES = """
import torch
from torch import nn

CONFIG = {"input_size": (3, 32, 32), "mean": (0.5,) * 3, "std": (0.25,) * 3, "crop_pct": 1.0}


class Net(nn.Module):
    def __init__(self, after=None, bias=True, config=True):
        super().__init__()
        torch.manual_seed(0)
        self.unused = nn.Linear(3, 4)
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 16)
        )
        self.last = nn.Linear(16, 4, bias=bias)
        self.late = nn.Linear(3, 3)
        self.after = after
        if config:
            self.pretrained_cfg = CONFIG

    def forward(self, x):
        x = self.last(self.body(x))
        return self.after(x) if self.after else x


class Cosine(Net):
    def forward(self, x):
        x = nn.functional.normalize(self.body(x))
        return 20 * x @ nn.functional.normalize(self.last.weight).T


class TwoPaths(Net):
    def forward(self, x):
        return self.last(self.body(x)) + x.mean(dim=(1, 2, 3))[:, None]


def plain(): return Net()
def unbiased(): return Net(bias=False)
def softmax(): return Net(after=lambda x: x.softmax(1))
def scaled(): return Net(after=lambda x: 2 * x)
def cosine(): return Cosine()
def two_paths(): return TwoPaths()
def pair(): return Net(after=lambda x: (x, x))
def convolutional():
    model = nn.Sequential(nn.Conv2d(3, 4, 32), nn.Flatten())
    model.pretrained_cfg = CONFIG
    return model
def silent(): return Net(config=False)
def own_transform():
    model = Net(config=False)
    model.transform = to_tensor
    return model
def to_tensor(picture):
    from torchvision.transforms.functional import pil_to_tensor
    return pil_to_tensor(picture.resize((40, 40))).float() / 255
def torchvision_net():
    from torchvision.models import mobilenet_v3_small
    torch.manual_seed(0)
    model = mobilenet_v3_small(num_classes=5)
    model.pretrained_cfg = CONFIG
    return model
def breaks(): raise RuntimeError("out of\\nluck")
def number(): return 3
"""


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_networks.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_networks", raising=False)
    return "own_networks"


@pytest.mark.parametrize("factory", ["plain", "unbiased", "own_transform", "torchvision_net"])
def test_own_networks(factories: str, factory: str) -> None:
    backbone = load_backbone(f"{factories}:{factory}")
    model = getattr(sys.modules[factories], factory)().eval()
    batch = batch_for(backbone)
    with torch.inference_mode():
        torch.testing.assert_close(backbone.embed(batch)[1], model(batch), rtol=1e-5, atol=1e-5)
    if factory == "own_transform":
        assert "to_tensor" in backbone.preprocessing["transform"]
        assert backbone.input_size == (3, 40, 40)
    else:
        assert backbone.preprocessing["std"] == [0.25] * 3


def test_a_network_with_a_transform_of_its_own_needs_no_timm(factories: str, tmp_path: Path) -> None:
    """Importing timm takes longer than embedding an image."""
    load_backbone(f"{factories}:own_transform")
    weights = saved(sys.modules[factories].own_transform(), tmp_path / "w.safetensors")
    code = (
        f"import sys; from ghost_ray.backbone import load_backbone\n"
        f"load_backbone('{factories}:own_transform', {weights!r}); assert 'timm' not in sys.modules"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def test_own_network_with_weights(factories: str, tmp_path: Path) -> None:
    plain = load_backbone(f"{factories}:plain")
    model = sys.modules[factories].plain()
    with torch.no_grad():
        model.last.bias += 1
    backbone = load_backbone(f"{factories}:plain", saved(model, tmp_path / "w.safetensors"))
    np.testing.assert_allclose(backbone.head.bias, plain.head.bias + 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        ("softmax", "head is not linear: its output differs"),
        ("scaled", "head is not linear: its output differs"),
        ("cosine", "head is not linear: its last linear layer 'body.4' gives 16 values"),
        ("two_paths", "something follows that layer or bypasses it"),
        ("convolutional", "it runs no torch.nn.Linear"),
        ("pair", "returns tuple"),
        ("silent", "attribute `transform`"),
        ("breaks", "RuntimeError: out of luck"),
        ("number", "returned a int"),
        ("nothing", "AttributeError"),
    ],
)
def test_own_networks_that_are_refused(factories: str, factory: str, reason: str) -> None:
    assert reason in refusal(f"{factories}:{factory}")


def test_module_that_is_not_there() -> None:
    assert "ModuleNotFoundError" in refusal("no.such.module:factory")


def test_network_without_a_classifier(tmp_path: Path, factories: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "headless.py").write_text("import timm\nmake = lambda: timm.create_model('test_vit', num_classes=0)\n")
    assert "no classifier" in refusal("headless:make")
