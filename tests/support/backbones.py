"""Small networks to load, and the error if one cannot be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from ghost_ray.backbone import Backbone, load_backbone
from ghost_ray.errors import InputError


def network(name: str, classes: int = 7, **options: object) -> nn.Module:
    torch.manual_seed(3)
    return shaken(timm.create_model(name, num_classes=classes, **options))


def shaken(model: nn.Module) -> nn.Module:
    """The model in evaluation mode with noise on every weight: a fresh head near zero would hide a wrong cut."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def saved(model: nn.Module, path: Path) -> str:
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)
    return str(path)


def refusal(model: str, weights: object = None, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        load_backbone(model, None if weights is None else str(weights), **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def batch_for(backbone: Backbone, count: int = 3) -> torch.Tensor:
    return torch.randn(count, *backbone.input_size, generator=torch.Generator().manual_seed(1))
