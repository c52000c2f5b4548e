"""GHOST on arrays, numpy or torch, in a notebook and without Ray: the jobs' own code on rows in memory."""

from ghost_ray.arrays.audited import Audit, audit
from ghost_ray.arrays.evaluated import OpenSetEvaluation, evaluate
from ghost_ray.arrays.ghost_model import Ghost, fit
from ghost_ray.arrays.opened import OpenStore, open_store

__all__ = ["Audit", "Ghost", "OpenSetEvaluation", "OpenStore", "audit", "evaluate", "fit", "open_store"]
