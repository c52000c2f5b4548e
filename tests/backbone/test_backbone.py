"""Backbones: the cut is right, the weights are the ones named, and what cannot be used is refused in one line."""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from support.backbones import batch_for, network, refusal, saved
from timm.data import create_transform, resolve_model_data_config
from torch import nn

from ghost_ray.backbone import PRESETS, load_backbone

NETWORKS = ["test_vit", "test_vit2", "test_resnet", "test_convnext", "test_efficientnet", "test_nfnet", "test_mambaout"]


# --- the cut ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_embedding_and_logits_are_the_networks_own(name: str, tmp_path: Path) -> None:
    model = network(name)
    backbone = load_backbone(name, saved(model, tmp_path / "w.safetensors"))
    batch = batch_for(backbone)
    with torch.inference_mode():
        logits = model(batch)
        embedding = model.forward_head(model.forward_features(batch), pre_logits=True)
    found_embedding, found_logits = backbone.embed(batch)
    assert found_embedding.dtype == found_logits.dtype == torch.float32
    torch.testing.assert_close(found_embedding, embedding, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found_logits, logits, rtol=1e-5, atol=1e-5)
    assert (backbone.classes, backbone.dimensions) == backbone.head.weight.shape == (7, embedding.shape[1])
    logits_of_head = backbone.head.logits(found_embedding.numpy())
    np.testing.assert_allclose(logits_of_head, found_logits.numpy(), rtol=1e-4, atol=1e-5)


def test_preprocessing_is_timms_own_and_travels(tmp_path: Path) -> None:
    model = network("test_convnext")
    backbone = load_backbone("test_convnext", saved(model, tmp_path / "w.safetensors"))
    settings = resolve_model_data_config(model)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (210, 300, 3), dtype=np.uint8))
    expected = create_transform(**settings, is_training=False)(picture)
    torch.testing.assert_close(pickle.loads(pickle.dumps(backbone.transform))(picture), expected, rtol=0, atol=0)
    assert backbone.preprocessing == {
        "input_size": [3, 160, 160],
        "interpolation": "bicubic",
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "crop_pct": 0.95,
        "crop_mode": "center",
    }


def test_restrict_keeps_rows_of_the_head_and_the_networks_name(tmp_path: Path) -> None:
    weights = saved(network("test_resnet"), tmp_path / "w.safetensors")
    whole = load_backbone("test_resnet", weights)
    part = load_backbone("test_resnet", weights, restrict=[5, 0, 2])
    batch = batch_for(whole)
    torch.testing.assert_close(part.embed(batch)[1], whole.embed(batch)[1][:, [5, 0, 2]])
    assert part.classes == 3
    assert part.weights_sha256 == whole.weights_sha256
    assert "0 to 6" in refusal("test_resnet", weights, restrict=[7])
    assert "distinct" in refusal("test_resnet", weights, restrict=[1, 1])


def test_bf16_is_near_and_comes_out_as_float32(tmp_path: Path) -> None:
    weights = saved(network("test_vit"), tmp_path / "w.safetensors")
    # In a child process without AMX, which some virtual machines announce and then trap.
    code = f"""
import torch
from ghost_ray.backbone import load_backbone
rough, exact = (load_backbone("test_vit", {weights!r}, precision=precision) for precision in ("bf16", "fp32"))
batch = torch.randn(3, *exact.input_size)
first, second = exact.embed(batch)[0], rough.embed(batch)[0]
assert second.dtype == torch.float32
assert 0 < (first - second).abs().max() < 0.1 * first.abs().max()
"""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def test_the_hub_is_not_looked_up_for_weights_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a network may take seconds to find that out."""
    weights = saved(network("test_vit"), tmp_path / "w.safetensors")
    monkeypatch.delattr("socket.getaddrinfo")
    load_backbone("test_vit", weights, device="cpu")


def test_precision_and_device_that_cannot_be(tmp_path: Path) -> None:
    assert "GPUs" in refusal("test_vit", device="cpu", precision="fp16")
    assert "fp32, bf16, fp16" in refusal("test_vit", precision="int4")
    assert "device " in refusal("test_vit", device="quantum")


@pytest.mark.slow
def test_compiled_gives_the_same(tmp_path: Path) -> None:
    weights = saved(network("test_resnet"), tmp_path / "w.safetensors")
    plain, compiled = (load_backbone("test_resnet", weights, compile=value) for value in (False, True))
    batch = batch_for(plain)
    torch.testing.assert_close(compiled.embed(batch)[0], plain.embed(batch)[0], rtol=1e-4, atol=1e-4)
    assert compiled.weights_sha256 == plain.weights_sha256


def test_loading_twice_gives_the_same_numbers(tmp_path: Path) -> None:
    weights = saved(network("test_vit"), tmp_path / "w.safetensors")
    backbones = [load_backbone("test_vit", weights) for _ in range(2)]
    batch = batch_for(backbones[0])
    torch.testing.assert_close(backbones[0].embed(batch), backbones[1].embed(batch), rtol=0, atol=0)


# --- weights ------------------------------------------------------------------------------------------------

WRAPPINGS = {
    "plain.pth": lambda state: state,
    "model.pth": lambda state: {"model": state, "epoch": 3, "args": argparse.Namespace(lr=1e-3)},
    "state_dict.pt": lambda state: {"state_dict": {f"module.{name}": value for name, value in state.items()}},
    "ema.bin": lambda state: {"model": {k: v * 0 for k, v in state.items()}, "model_ema": state},
    "lightning.ckpt": lambda state: {"state_dict": {f"model.{k}": v for k, v in state.items()}, "epoch": 3},
    "checkpoint.pth.tar": lambda state: {"state_dict": state, "best_prec1": 93.4},
    "without-a-suffix": lambda state: state,
    "wrongly-named.safetensors": lambda state: state,
}


@pytest.mark.parametrize("name", WRAPPINGS)
def test_every_wrapping_of_the_same_weights_has_one_fingerprint(name: str, tmp_path: Path) -> None:
    model = network("test_resnet")
    torch.save(WRAPPINGS[name](model.state_dict()), tmp_path / name)
    found = load_backbone("test_resnet", str(tmp_path / name))
    reference = load_backbone("test_resnet", saved(model, tmp_path / "w.safetensors"))
    assert found.weights_sha256 == reference.weights_sha256
    assert len(found.weights_sha256) == 64
    batch = batch_for(found)
    torch.testing.assert_close(found.embed(batch), reference.embed(batch), rtol=0, atol=0)


def test_weights_are_recognised_by_their_content(tmp_path: Path) -> None:
    model = network("test_resnet")
    torch.save({"state_dict": model.state_dict()}, tmp_path / "old.th", _use_new_zipfile_serialization=False)
    saved(model, tmp_path / "nameless")
    digests = {load_backbone("test_resnet", str(tmp_path / name)).weights_sha256 for name in ("old.th", "nameless")}
    assert digests == {load_backbone("test_resnet", saved(model, tmp_path / "w.safetensors")).weights_sha256}


def test_the_fingerprint_sees_one_changed_number(tmp_path: Path) -> None:
    model = network("test_resnet")
    first = load_backbone("test_resnet", saved(model, tmp_path / "a.safetensors")).weights_sha256
    with torch.no_grad():
        model.fc.bias[3] += 1e-6
    assert load_backbone("test_resnet", saved(model, tmp_path / "b.safetensors")).weights_sha256 != first


class MaeVisionTransformer(timm.models.vision_transformer.VisionTransformer):
    """The fine-tuned network of the MAE authors: tokens averaged without the class token, then normalised."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.fc_norm = nn.LayerNorm(self.embed_dim, eps=1e-6)
        del self.norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch_embed(x)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.fc_norm(x[:, 1:, :].mean(dim=1)))


def test_the_authors_mae_layout_loads_and_pools_by_average(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = MaeVisionTransformer(
        img_size=160, patch_size=16, embed_dim=64, depth=6, num_heads=2, mlp_ratio=3, num_classes=9
    ).eval()
    names = set(model.state_dict())
    assert {"fc_norm.weight", "head.weight", "cls_token"} <= names
    assert "norm.weight" not in names
    torch.save({"model": model.state_dict()}, tmp_path / "mae_finetuned.pth")
    backbone = load_backbone("test_vit", str(tmp_path / "mae_finetuned.pth"))
    batch = batch_for(backbone)
    with torch.inference_mode():
        torch.testing.assert_close(backbone.embed(batch)[1], model(batch), rtol=1e-5, atol=1e-5)
    assert backbone.classes == 9


@pytest.mark.slow
def test_the_mae_b_preset_loads_that_layout(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = MaeVisionTransformer(patch_size=16, embed_dim=768, depth=12, num_heads=12, num_classes=1000).eval()
    torch.save({"model": model.state_dict()}, tmp_path / "mae_finetuned_vit_base.pth")
    backbone = load_backbone("mae-b", str(tmp_path / "mae_finetuned_vit_base.pth"))
    batch = batch_for(backbone, 2)
    with torch.inference_mode():
        torch.testing.assert_close(backbone.embed(batch)[1], model(batch), rtol=1e-4, atol=1e-4)
    assert backbone.preprocessing["crop_pct"] == 0.875
    assert backbone.preprocessing["mean"] == [0.485, 0.456, 0.406]


@pytest.mark.parametrize(("name", "dimensions"), [("mae-h", 1280), ("mae-b", 768), ("convnextv2-h", 2816)])
def test_presets_name_networks_of_timm(name: str, dimensions: int) -> None:
    with torch.device("meta"):
        model = timm.create_model(PRESETS[name].architecture, **{"num_classes": 1000, **PRESETS[name].options})
    assert isinstance(model.get_classifier(), nn.Linear)
    assert model.num_features == dimensions


def test_foreign_names_are_renamed_the_way_timm_does(tmp_path: Path) -> None:
    """The authors' ConvNeXt files call the last layer and the last norm otherwise than timm."""
    model = network("test_convnext", 1000)
    back = {"head.norm.": "norm.", "head.fc.": "head.", "stem.": "downsample_layers.0."}
    state = {}
    for name, value in model.state_dict().items():
        new = next((theirs + name[len(ours) :] for ours, theirs in back.items() if name.startswith(ours)), name)
        if new.startswith("stages."):
            _, stage, part, *rest = new.split(".")
            new = ".".join(["stages", stage, *rest] if part == "blocks" else ["downsample_layers", stage, *rest])
            new = new.replace("conv_dw", "dwconv").replace("mlp.fc1", "pwconv1").replace("mlp.fc2", "pwconv2")
        state[new] = value
    torch.save({"model": state}, tmp_path / "theirs.pth")
    found = load_backbone("test_convnext", str(tmp_path / "theirs.pth"))
    reference = load_backbone("test_convnext", saved(model, tmp_path / "w.safetensors"))
    assert found.weights_sha256 == reference.weights_sha256


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    weights = saved(network("test_resnet"), tmp_path / "w.safetensors")
    message = refusal("test_vit", weights)
    assert "do not fit the network" in message
    assert "and" in message
    assert "more" in message
    state = {k: v for k, v in network("test_vit").state_dict().items() if k != "blocks.1.attn.qkv.weight"}
    torch.save(state, tmp_path / "w.pth")
    assert "blocks.1.attn.qkv.weight is missing" in refusal("test_vit", tmp_path / "w.pth")
    larger = network("test_vit", img_size=192).state_dict()
    torch.save(larger, tmp_path / "large.pth")
    assert "pos_embed is 1×145×64, the network's 1×101×64" in refusal("test_vit", tmp_path / "large.pth")


class Payload:
    def __reduce__(self) -> tuple:
        return Path.touch, (Path("unpickled"),)


def test_weights_that_are_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "does not exist" in refusal("test_vit", "nowhere.pth")
    assert "is a folder" in refusal("test_vit", tmp_path)
    (tmp_path / "w.onnx").write_bytes(b"")
    assert "is an empty file, which holds no weights" in refusal("test_vit", "w.onnx")
    (tmp_path / "page.pth").write_text("<!DOCTYPE html><p>Sign in to download")
    assert "is an HTML page, which holds no weights — a checkpoint of PyTorch" in refusal("test_vit", "page.pth")
    saved(network("test_vit"), tmp_path / "cut.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "cut.safetensors").read_bytes()[:-10])
    assert "weights 'cut.safetensors': " in refusal("test_vit", "cut.safetensors")
    torch.save({"epoch": 3}, tmp_path / "empty.pth")
    assert "not a tensor" in refusal("test_vit", "empty.pth")
    torch.save({"model": Payload()}, tmp_path / "evil.pth")
    assert "only tensors, numbers and strings are loaded, never code" in refusal("test_vit", "evil.pth")
    assert not (tmp_path / "unpickled").exists()


def test_weights_with_nan_are_refused(tmp_path: Path) -> None:
    model = network("test_resnet")
    with torch.no_grad():
        model.fc.weight[0, 0] = torch.nan
    assert "non-finite" in refusal("test_resnet", saved(model, tmp_path / "w.safetensors"))


# --- names --------------------------------------------------------------------------------------------------


def test_wrong_names_get_the_nearest_right_one() -> None:
    assert "nearest: 'resnet50'" in refusal("resnet5O")
    assert "nearest: 'swin-t'" in refusal("swin-tt")
    assert "no weights 'mine' for resnet50" in refusal("resnet50.mine")
    assert "mae_finetuned_vit_huge.pth" in refusal("mae-h")


def test_without_a_hub_the_answer_is_one_line_and_quick(tmp_path: Path) -> None:
    """In a process of its own: the hub client reads its settings when imported."""
    code = (
        "from ghost_ray.backbone import load_backbone\n"
        "from ghost_ray.errors import InputError\n"
        "for name in ('test_vit', 'hf-hub:timm/test_vit.r160_in1k'):\n"
        "    try: load_backbone(name)\n"
        "    except InputError as error: print(error)\n"
    )
    environment = {"HF_ENDPOINT": "http://hub.invalid", "HF_HOME": str(tmp_path), "PATH": "/usr/bin"}
    root = str(Path(__file__).parents[2])
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=root, capture_output=True, text=True, timeout=120
    )
    lines = ran.stdout.splitlines()
    assert len(lines) == 2, ran.stderr
    assert all("weights cannot be loaded" in line and "`weights=FILE`" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("deit_tiny_distilled_patch16_224", "it has 2 heads"), ("dla46_c", "convolution (Conv2d)")],
)
def test_networks_of_timm_whose_head_is_not_linear(name: str, reason: str, tmp_path: Path) -> None:
    assert reason in refusal(name, saved(network(name), tmp_path / "w.safetensors"))


def test_a_file_that_holds_no_weights_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    (tmp_path / "images").mkdir()
    words = ["extract", "--data", "images", "--model", "resnet18", "--weights", "photo.jpg", "--out", "store"]
    code = f"""
import sys
from ghost_ray.cli import main
try:
    main({words!r})
finally:
    print(sorted({{"torch", "ray", "timm"}} & set(sys.modules)))
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (2, "[]\n")
    assert "--weights 'photo.jpg': is an image, which holds no weights" in ended.stderr
