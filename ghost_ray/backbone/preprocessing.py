"""A network's own evaluation preprocessing, as a picklable callable and as a description for the manifest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from PIL import Image

from ghost_ray.errors import InputError, one_line

Transform = Callable[[Image.Image], torch.Tensor]


def own_preprocessing(model: torch.nn.Module, name: str) -> tuple[Transform, dict[str, Any]]:
    """The transform from an RGB image to the network's input.

    An attribute `transform` of the module wins; otherwise its `pretrained_cfg` or `default_cfg` says what timm's
    evaluation transform needs.

    Returns
    -------
    transform : callable
        PIL image → float32 tensor [3, H, W].
    description : dict
        JSON-able: input_size, mean, std, crop_pct, crop_mode, interpolation; for an own `transform` its repr.
    """
    from timm.data.config import resolve_data_config
    from timm.data.transforms_factory import create_transform

    custom = getattr(model, "transform", None)
    if callable(custom):
        return custom, {"transform": one_line(repr(custom), 1000)}
    config: Any = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    config = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(config, dict) or "input_size" not in config:
        raise InputError(
            "model",
            name,
            "does not say how its images are prepared",
            "give the module an attribute `transform` (PIL image → tensor) or a dict `pretrained_cfg` with"
            " input_size, mean, std, crop_pct and interpolation",
        )
    settings: dict[str, Any] = resolve_data_config(pretrained_cfg=config)
    description = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
    return create_transform(**settings, is_training=False), description


def input_shape(transform: Transform, name: str) -> tuple[int, ...]:
    """Shape [3, H, W] of the output of `transform`."""
    made = transform(Image.new("RGB", (320, 240)))
    if not isinstance(made, torch.Tensor) or made.ndim != 3:
        raise InputError("model", name, "its transform does not turn an image into a tensor [3, H, W]")
    return tuple(made.shape)
