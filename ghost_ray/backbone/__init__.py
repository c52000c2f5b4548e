"""What a network is: a body that makes embeddings, the linear layer on top of it, and its own preprocessing.

>>> from ghost_ray.backbone import load_backbone
>>> backbone = load_backbone("resnet50", weights="resnet50.safetensors")  # doctest: +SKIP
>>> embedding, logits = backbone.embed(batch)                             # doctest: +SKIP
"""

from __future__ import annotations

from ghost_ray.backbone.build import PRESETS, Preset, name_from_manifest, published_accuracy
from ghost_ray.backbone.network import PRECISIONS, Backbone, load_backbone
from ghost_ray.backbone.network_info import NetworkFacts, network_facts

__all__ = [
    "PRECISIONS",
    "PRESETS",
    "Backbone",
    "NetworkFacts",
    "Preset",
    "load_backbone",
    "name_from_manifest",
    "network_facts",
    "published_accuracy",
]
