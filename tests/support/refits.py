"""Pictures, checkpoints and settings for refits of a small network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image
from safetensors.torch import save_file
from timm.data import create_transform

from ghost_ray.config.refit_settings import RefitConfig
from support.networks import CLASSES, Small

NAMES = ("ant", "bee", "cat", "dog")
assert len(NAMES) == CLASSES


def write_pictures(folder: Path, per_class: int, seed: int, first: int = 0) -> None:
    """``folder/CLASS/NUMBER.png``: each class a colour of its own, with noise."""
    for index, name in enumerate(NAMES):
        (folder / name).mkdir(parents=True, exist_ok=True)
        colour = np.array([(210, 60, 60), (60, 210, 60), (60, 60, 210), (190, 190, 60)][index])
        _write(folder / name, colour, per_class, seed + index, first)


def write_unknowns(folder: Path, count: int, seed: int) -> None:
    """Grey and violet pictures: no class has these colours."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, np.array((150, 90, 160)), count, seed, 0)


def _write(folder: Path, colour: np.ndarray, count: int, seed: int, first: int) -> None:
    rng = np.random.default_rng([seed, first])
    for number in range(first, first + count):
        pixels = colour + rng.normal(0, 25, 3) + rng.normal(0, 20, (32, 32, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number:04d}.png")


@torch.inference_mode()
def write_checkpoint(path: Path, pictures: Path, *, seed: int = 0, confused: bool = False) -> str:
    """A network whose last layer is fitted to ``pictures`` by least squares; ``confused``, to the wrong classes."""
    torch.manual_seed(seed)
    network = Small().eval()
    network.stem.weight.add_(0.05 * seed * torch.randn_like(network.stem.weight))
    transform = create_transform(**network.pretrained_cfg)
    files = sorted(pictures.glob("*/*.png"))
    batch = torch.stack([transform(Image.open(file).convert("RGB")) for file in files])
    embedding = torch.relu(network.stem(batch)).mean((2, 3))
    label = torch.tensor([NAMES.index(file.parent.name) for file in files])
    if confused:
        label = label[torch.randperm(len(label))]
    inputs = torch.cat([embedding, torch.ones(len(embedding), 1)], dim=1)
    solution = torch.linalg.lstsq(inputs, 10 * torch.nn.functional.one_hot(label, CLASSES).float()).solution
    network.head.weight.copy_(solution[:-1].T)
    network.head.bias.copy_(solution[-1])
    save_file(network.state_dict(), path)
    return str(path)


def write_world(folder: Path) -> None:
    """Everything a refit needs below ``folder``."""
    write_pictures(folder / "train", 20, seed=1)
    write_pictures(folder / "test", 12, seed=2)
    write_unknowns(folder / "violet", 30, seed=3)
    write_checkpoint(folder / "weights.safetensors", folder / "train")


def settings(folder: Path, model: str = "support.networks:small", **changes: Any) -> dict[str, Any]:
    """Settings of a refit in that world, as a YAML file holds them."""
    return {
        "registry": str(folder / "registry"),
        "network": {
            "model": model,
            "weights": str(folder / "weights.safetensors"),
            "batch_size": 16,
            "gpus_per_actor": 0,
        },
        "fit": {"data": str(folder / "train")},
        "known": {"data": str(folder / "test")},
        "unknown": {"violet": {"data": str(folder / "violet")}},
        "evaluate": {"methods": ["ghost", "msp"], "draws": 2, "draw_size": 10},
        "accept_known": 0.9,
        "gates": {"max_rejected_fraction": 0.5, "max_accuracy_drop": 0.1, "max_auoscr_drop": 0.2},
        **changes,
    }


def write_settings(folder: Path, **changes: Any) -> str:
    path = folder / "refit.yaml"
    path.write_text(yaml.safe_dump(settings(folder, **changes)))
    return str(path)


def config_of(folder: Path, **changes: Any) -> RefitConfig:
    return RefitConfig.model_validate(settings(folder, **changes))


def same_world(world: Path, refitted: Path, **changes: Any) -> RefitConfig:
    """Settings that name the data where it was when the stores were extracted."""
    return config_of(refitted, **{"registry": str(world / "registry"), **changes})


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
