"""The demo's data and network: scikit-learn's handwritten digits and a small timm network trained on six of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ghost_ray.progress import progress

if TYPE_CHECKING:
    import torch
    from PIL import Image

ARCHITECTURE = "test_convnext"
KNOWN_DIGITS = 6
PIXELS = 32
_EPOCHS = 24
_EARLY_EPOCHS = 3
_BATCH = 64
_SEED = 0


def network() -> torch.nn.Module:
    """The demo's network without weights: the factory that ``--model ghost_ray.demo.digits:network`` names."""
    import timm

    return timm.create_model(
        ARCHITECTURE,
        num_classes=KNOWN_DIGITS,
        pretrained_cfg_overlay={
            "input_size": (3, PIXELS, PIXELS),
            "crop_pct": 1.0,
            "mean": (0.5, 0.5, 0.5),
            "std": (0.5, 0.5, 0.5),
            "interpolation": "bicubic",
            "num_classes": KNOWN_DIGITS,
        },
    )


def class_name(digit: int) -> str:
    """Folder name of a known digit; sorted names are in the order of the network's outputs."""
    return f"digit-{digit}"


def write_images(folder: str) -> dict[str, int]:
    """Lay the digits out as image folders: train/ and test/ with one subfolder per known digit, unknown/ flat.

    Returns
    -------
    dict
        Number of images in each of the three.
    """
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(_SEED).permutation(len(digits.target))
    counts = {"train": 0, "test": 0, "unknown": 0}
    seen = np.zeros(10, int)
    for index in order.tolist():
        digit = int(digits.target[index])
        if digit < KNOWN_DIGITS:
            part = ("train", "test")[seen[digit] % 2]
            place = os.path.join(folder, part, class_name(digit))
        else:
            part, place = "unknown", os.path.join(folder, "unknown")
        seen[digit] += 1
        counts[part] += 1
        os.makedirs(place, exist_ok=True)
        pixels = np.rint(digits.images[index] * (255 / 16)).astype(np.uint8)
        Image.fromarray(pixels).save(os.path.join(place, f"{index:04d}.png"))
    return counts


def train(images: str, weights: str, early: str | None = None) -> float:
    """Train the network on ``images``/train from a fixed seed and write ``weights``; returns training accuracy.

    ``early`` takes the weights as they are after a few epochs: a second network, for the demo's study.
    """
    import torch
    from timm.data.config import resolve_data_config
    from timm.data.transforms_factory import create_transform

    # The caller's random state is left as it was, and so are its threads.
    with torch.random.fork_rng(devices=[]), _one_thread():
        torch.manual_seed(_SEED)
        model = network()
        transform = create_transform(**resolve_data_config({}, model=model))
        pixels, labels = _training_batch(images, transform)
        steps = _EPOCHS * -(-len(labels) // _BATCH)
        optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
        model.train()
        with progress("train the demo's network", steps, "steps") as shown:
            for epoch in range(_EPOCHS):
                if epoch == _EARLY_EPOCHS and early is not None:
                    _save(model, early)
                for rows in torch.randperm(len(labels)).split(_BATCH):
                    # Random shifts by up to two pixels keep the small network from learning positions.
                    shift = tuple(torch.randint(-2, 3, (2,)).tolist())
                    output = model(torch.roll(pixels[rows], shift, (2, 3)))
                    loss = torch.nn.functional.cross_entropy(output, labels[rows])
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
                    schedule.step()
                    shown.advance()
    model.eval()
    with torch.inference_mode():
        accuracy = float((model(pixels).argmax(1) == labels).float().mean())
    _save(model, weights)
    return accuracy


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Small layers take longer when two threads share them: most of the time they wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _save(model: torch.nn.Module, weights: str) -> None:
    from safetensors.torch import save_file

    os.makedirs(os.path.dirname(weights), exist_ok=True)
    save_file(model.state_dict(), weights)


def _training_batch(images: str, transform: Callable[[Image.Image], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    import torch
    from PIL import Image

    pixels, labels = [], []
    for digit in range(KNOWN_DIGITS):
        folder = os.path.join(images, "train", class_name(digit))
        for name in sorted(os.listdir(folder)):
            with Image.open(os.path.join(folder, name)) as picture:
                pixels.append(transform(picture.convert("RGB")))
            labels.append(digit)
    return torch.stack(pixels), torch.tensor(labels)
