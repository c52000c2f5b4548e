"""One Gaussian per class and dimension: accumulated in one pass, merged from parts, and used for distances.

Examples
--------
>>> import numpy as np
>>> from ghost_ray.gaussians import Accumulator, gamma, z_sum
>>> rng = np.random.default_rng(0)
>>> label = rng.integers(0, 3, size=90)
>>> embedding = (rng.standard_normal((90, 4)) + label[:, None]).astype(np.float32)
>>> accumulator = Accumulator.empty(classes=3, dimensions=4)
>>> accumulator.update(embedding, label)
>>> gaussians = accumulator.finish()
>>> s = z_sum(embedding, label, gaussians.mean, gaussians.inverse_std)
>>> gamma(np.full(90, 5.0), s, gaussians.present[label]).shape
(90,)
"""

from __future__ import annotations

from ghost_ray.gaussians.accumulator import Accumulator
from ghost_ray.gaussians.distance import SMALLEST_Z_SUM, GhostScore, gamma, ghost_score, z_sum
from ghost_ray.gaussians.fitted import Gaussians

__all__ = ["SMALLEST_Z_SUM", "Accumulator", "Gaussians", "GhostScore", "gamma", "ghost_score", "z_sum"]
