"""Open-set scores: GHOST and its rivals, one file each, by name.

Examples
--------
>>> import numpy as np
>>> from ghost_ray import scorers
>>> from ghost_ray.rows import Rows
>>> rng = np.random.default_rng(0)
>>> label = rng.integers(0, 3, 60)
>>> embedding = (4 * np.eye(3)[label] + rng.standard_normal((60, 3))).astype(np.float32)
>>> rows = Rows(label, embedding.argmax(1), embedding, logits=embedding)
>>> scorers.create("ghost").fit(lambda: [rows]).score(rows).shape
(60,)
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ghost_ray.scorers.catalogue import (
    Option,
    create,
    is_rival,
    names,
    options_of,
    refused_plugins,
    register,
    register_plugins,
    scorer_class,
    title_of,
    unregister,
)
from ghost_ray.scorers.scorer import Kept, Scorer, ShardedScorer, State

for _module in pkgutil.iter_modules(__path__):  # those of the methods register them
    import_module(f"{__name__}.{_module.name}")
register_plugins()

__all__ = [
    "Kept",
    "Option",
    "Scorer",
    "ShardedScorer",
    "State",
    "create",
    "is_rival",
    "names",
    "options_of",
    "refused_plugins",
    "register",
    "scorer_class",
    "title_of",
    "unregister",
]
