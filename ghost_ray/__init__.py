"""GHOST open-set recognition at cluster scale."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Imported when first used: `import ghost_ray` and the command line stay light.
_PUBLIC = {
    "Audit": "ghost_ray.arrays",
    "Ghost": "ghost_ray.arrays",
    "GhostDetector": "ghost_ray.arrays.detector",
    "OpenSetClassifier": "ghost_ray.classifier",
    "OpenSetEvaluation": "ghost_ray.arrays",
    "audit": "ghost_ray.arrays",
    "evaluate": "ghost_ray.arrays",
    "fit": "ghost_ray.arrays",
    "load": "ghost_ray.registry",
    "open_store": "ghost_ray.arrays",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
