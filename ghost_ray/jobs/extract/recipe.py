"""How a network is built; small, it travels to every actor, and without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ghost_ray.backbone import Backbone


@dataclass(frozen=True)
class Recipe:
    """What a process that is to run the network has to know."""

    model: str
    weights: str | None
    precision: str
    compile: bool
    tf32: bool
    restrict: tuple[int, ...] | None
    weights_sha256: str | None = None  # of the plan's network

    def load(self, device: str) -> Backbone:
        """The network on a device; another one than the plan was made with is refused."""
        from ghost_ray.backbone import load_backbone
        from ghost_ray.backbone.devices import allow_tf32

        allow_tf32(self.tf32)
        backbone = load_backbone(self.model, self.weights, device, self.precision, self.compile, self.restrict)
        if self.weights_sha256 is not None:
            backbone.require_weights(self.weights_sha256, self.weights)
        return backbone
