"""Is a column of numbers normal? Shapiro–Wilk for many columns at once, and Holm's correction over all of them.

Examples
--------
>>> import numpy as np
>>> from ghost_ray.normality import holm, shapiro_wilk
>>> x = np.random.default_rng(0).standard_normal((200, 3))
>>> W, p = shapiro_wilk(x)
>>> rejected, adjusted = holm(p, alpha=0.05)
>>> rejected.tolist()
[False, False, False]
"""

from __future__ import annotations

from ghost_ray.normality.multiplicity import HolmFamily, holm
from ghost_ray.normality.shapiro import ColumnTests, shapiro_wilk, test_columns

__all__ = ["ColumnTests", "HolmFamily", "holm", "shapiro_wilk", "test_columns"]
