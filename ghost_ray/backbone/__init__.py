"""What a network is: a body that makes embeddings, the linear layer on top of it, and its own preprocessing.

>>> from ghost_ray.backbone import load_backbone
>>> backbone = load_backbone("resnet50", weights="resnet50.safetensors")  # doctest: +SKIP
>>> embedding, logits = backbone.embed(batch)                             # doctest: +SKIP
"""

from __future__ import annotations

from ghost_ray.backbone.build import name_from_manifest
from ghost_ray.backbone.cpu_bf16 import ensure_bf16
from ghost_ray.backbone.facts import NetworkFacts, network_facts
from ghost_ray.backbone.network import PRECISIONS, Backbone, load_backbone
from ghost_ray.backbone.presets import PRESETS, Preset, published_accuracy

__all__ = [
    "PRECISIONS",
    "PRESETS",
    "Backbone",
    "NetworkFacts",
    "Preset",
    "ensure_bf16",
    "load_backbone",
    "name_from_manifest",
    "network_facts",
    "published_accuracy",
]
