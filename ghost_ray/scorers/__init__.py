"""Open-set scores: GHOST and its rivals, one file each, by name.

Examples
--------
>>> import numpy as np
>>> from ghost_ray import scorers
>>> rng = np.random.default_rng(0)
>>> label = rng.integers(0, 3, 60)
>>> embedding = (4 * np.eye(3)[label] + rng.standard_normal((60, 3))).astype(np.float32)
>>> batch = scorers.Batch(embedding, embedding, embedding.argmax(1), label, np.arange(60, dtype=np.uint64))
>>> scorers.create("ghost").fit(lambda: [batch]).score(batch).shape
(60,)
"""

from __future__ import annotations

from importlib import import_module

from ghost_ray.scorers.base import Batch, Head, Kept, Scorer, ShardedScorer, State
from ghost_ray.scorers.registry import create, names, register, scorer_class

METHODS = (
    "ghost",
    "ghost_gpd",
    "ghost_full",
    "msp",
    "maxlogit",
    "energy",
    "knn",
    "nnguide",
    "react",
    "scale",
    "openmax",
    "evm",
    "vim",
    "mds",
    "rmds",
)  # the files of the methods, in the order of every table

for _method in METHODS:
    import_module(f"{__name__}.{_method}")

__all__ = [
    "Batch",
    "Head",
    "Kept",
    "Scorer",
    "ShardedScorer",
    "State",
    "create",
    "names",
    "register",
    "scorer_class",
]
