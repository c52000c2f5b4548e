"""Extraction with torchvision's networks: the rows are what torchvision's own code gives."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from support.backbones import saved, shaken
from torchvision import models

from ghost_ray.cli.commands import COMMANDS
from ghost_ray.config import ExtractConfig
from ghost_ray.jobs.extract import run as extract
from ghost_ray.store import Store

WNIDS = ("n01440764", "n01443537", "n01484850")


def write_photographs(folder: Path) -> None:
    """Two photographs, whole and in parts, as losslessly compressed files under ImageNet's names of classes."""
    for number, array in enumerate(load_sample_images().images):
        picture = Image.fromarray(array)
        for wnid, part in zip(WNIDS, [(0, 0, 640, 427), (0, 0, 200, 400), (300, 100, 640, 300)], strict=True):
            (folder / wnid).mkdir(parents=True, exist_ok=True)
            picture.crop(part).save(folder / wnid / f"{number}.png")


def test_rows_are_torchvisions_own(tmp_path: Path) -> None:
    write_photographs(tmp_path / "images")
    torch.manual_seed(1)
    model = shaken(models.mobilenet_v3_small())
    own = models.MobileNet_V3_Small_Weights.IMAGENET1K_V1.transforms()
    weights = saved(model, tmp_path / "w.safetensors")
    extract(
        ExtractConfig(
            data=str(tmp_path / "images"),
            model="torchvision:mobilenet_v3_small",
            weights=weights,
            out=str(tmp_path / "store"),
            batch_size=4,
        )
    )
    store = Store.open(str(tmp_path / "store"))
    assert "ImageClassification" in store.manifest.network.preprocessing["transform"]
    model.classifier[3] = torch.nn.Identity()
    for groups in store.row_groups():
        rows, keys = store.read_keyed(groups)
        for key, label, vector in zip(keys.to_pylist(), rows.label, rows.embedding, strict=True):
            assert label == WNIDS.index(key.split("/")[0])
            with torch.inference_mode():
                expected = model(own(Image.open(tmp_path / "images" / key))[None])[0]
            assert (torch.from_numpy(vector.copy()) - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.slow
def test_the_example_of_the_help_runs(tmp_path: Path) -> None:
    """With torchvision's published file in torch's cache, where a download would put it."""
    write_photographs(tmp_path / "imagenet" / "train")
    cache = tmp_path / "torch" / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    file = models.ViT_B_16_Weights.IMAGENET1K_V1.url.rsplit("/", 1)[1]
    torch.save(shaken(models.vit_b_16()).state_dict(), cache / file)
    program, *words = shlex.split(COMMANDS["extract"].example)
    assert program == "ghost-ray"
    ended = subprocess.run(
        [sys.executable, "-m", "ghost_ray", *words, "--json"],
        cwd=tmp_path,
        env=os.environ | {"TORCH_HOME": str(tmp_path / "torch")},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["rows"] == 6
