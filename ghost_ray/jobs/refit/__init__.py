"""``refit``: extract, fit, audit, evaluate, gates and promotion, when the network or the data changed."""

from __future__ import annotations

from ghost_ray.jobs.refit.refit_job import run

__all__ = ["run"]
