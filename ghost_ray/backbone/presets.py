"""The paper's networks under short names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Preset:
    """A timm model with the settings its published weights need."""

    architecture: str  # timm name, tag included
    options: dict[str, Any] = field(default_factory=dict)  # further arguments of timm.create_model
    published: str = ""  # where the fine-tuned weights come from when timm's hub has none


# The fine-tuned MAE networks average the patch tokens and normalise afterwards (`fc_norm`), and are evaluated on
# a 224 crop of 256; timm's entry describes the pre-training, which has neither a head nor a crop of its own.
_MAE = {"global_pool": "avg", "pretrained_cfg_overlay": {"crop_pct": 224 / 256}}

PRESETS: dict[str, Preset] = {
    "mae-h": Preset("vit_huge_patch14_224.mae", _MAE, "mae_finetuned_vit_huge.pth of facebookresearch/mae"),
    "vit-b-16": Preset("vit_base_patch16_224.mae", _MAE, "mae_finetuned_vit_base.pth of facebookresearch/mae"),
    "convnextv2-h": Preset("convnextv2_huge.fcmae_ft_in1k"),
    "swin-t": Preset("swin_tiny_patch4_window7_224.ms_in1k"),
    "densenet-121": Preset("densenet121.tv_in1k"),
}
