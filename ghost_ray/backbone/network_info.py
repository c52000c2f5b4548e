"""What a plan needs to know about a network; read once, however many data sets the network embeds."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ghost_ray.backbone.network import Transform, kept_classes, load_backbone
from ghost_ray.files import is_local
from ghost_ray.files.download_cache import version_of
from ghost_ray.rows import Head


@dataclass(frozen=True)
class NetworkFacts:
    """A network as in its manifest, its last layer, and what it needs to run."""

    weights_sha256: str  # of all tensors, before the head was narrowed
    head: Head
    preprocessing: dict[str, Any]
    transform: Transform
    bytes: int
    seconds_an_image: float
    restricted_to: list[int] | None = None

    @property
    def classes(self) -> int:
        """K, after ``restrict``."""
        return len(self.head.weight)

    @property
    def dimensions(self) -> int:
        """D, the length of an embedding."""
        return int(self.head.weight.shape[1])

    def restrict(self, classes: Sequence[int]) -> NetworkFacts:
        """The same with only these classes of the whole head, in this order."""
        assert self.restricted_to is None
        kept = kept_classes(classes, self.classes)
        head = Head(self.head.weight[kept], self.head.bias[kept])
        return dataclasses.replace(self, head=head, restricted_to=kept)


def network_facts(model: str, weights: str | None) -> NetworkFacts:
    """The facts of a network; they are cached for as long as its weights do not change."""
    return _read(model, weights, _version(weights))


def _version(weights: str | None) -> object:
    if weights is None:
        return None
    if not is_local(weights):
        return version_of(weights, "weights")
    try:
        found = os.stat(os.path.expanduser(weights))
    except OSError:
        return None  # refused when it is read
    return found.st_ino, found.st_size, found.st_mtime_ns


@functools.lru_cache(maxsize=2)
def _read(model: str, weights: str | None, version: object) -> NetworkFacts:
    # The facts do not depend on where the network runs; the actors find out about their own devices.
    backbone = load_backbone(model, weights, device="cpu")
    return NetworkFacts(
        backbone.weights_sha256,
        backbone.head,
        backbone.preprocessing,
        backbone.transform,
        backbone.bytes,
        backbone.seconds_an_image,
    )
