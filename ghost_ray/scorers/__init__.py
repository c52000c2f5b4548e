"""Open-set scores: GHOST and its rivals, one file each, by name."""

from __future__ import annotations

from ghost_ray.scorers import energy, maxlogit, msp
from ghost_ray.scorers.base import Batch, Head, Kept, Scorer, ShardedScorer, State
from ghost_ray.scorers.registry import create, names, register, scorer_class

__all__ = [
    "Batch",
    "Head",
    "Kept",
    "Scorer",
    "ShardedScorer",
    "State",
    "create",
    "energy",
    "maxlogit",
    "msp",
    "names",
    "register",
    "scorer_class",
]
