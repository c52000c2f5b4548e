"""The paper's networks under short names, and the accuracy that their authors state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ghost_ray.backbone.torchvision_models import PREFIX, torchvision_accuracy


@dataclass(frozen=True)
class Preset:
    """A network with the settings its published weights need."""

    architecture: str  # a timm name, tag included, or torchvision:NAME:WEIGHTS
    accuracy: float | None = None  # published: top-1 on ImageNet's validation set
    options: dict[str, Any] = field(default_factory=dict)  # further arguments of timm.create_model
    published: str = ""  # where the fine-tuned weights come from when timm's hub has none


# The fine-tuned MAE networks average the patch tokens and normalise afterwards (`fc_norm`), and are evaluated on
# a 224 crop of 256; timm's entry describes the pre-training, which has neither a head nor a crop of its own.
_MAE = {"global_pool": "avg", "pretrained_cfg_overlay": {"crop_pct": 224 / 256}}

# Accuracies: facebookresearch/mae (FINETUNE.md), facebookresearch/ConvNeXt-V2 (README.md), torchvision's own metadata.
PRESETS: dict[str, Preset] = {
    "mae-h": Preset("vit_huge_patch14_224.mae", 0.86928, _MAE, "mae_finetuned_vit_huge.pth of facebookresearch/mae"),
    "mae-b": Preset("vit_base_patch16_224.mae", 0.83664, _MAE, "mae_finetuned_vit_base.pth of facebookresearch/mae"),
    "convnextv2-h": Preset("convnextv2_huge.fcmae_ft_in1k", 0.863),
    "swin-t": Preset("torchvision:swin_t:IMAGENET1K_V1", 0.81474),
    "densenet-121": Preset("torchvision:densenet121:IMAGENET1K_V1", 0.74434),
    "vit-b-16": Preset("torchvision:vit_b_16:IMAGENET1K_V1", 0.81072),  # OpenOOD's
}


def published_accuracy(name: str) -> float | None:
    """Top-1 accuracy on ImageNet's validation set stated for a preset or one of torchvision's networks."""
    if name in PRESETS:
        return PRESETS[name].accuracy
    return torchvision_accuracy(name) if name.startswith(PREFIX) else None
