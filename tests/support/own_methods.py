"""Methods as users write them: variants of GHOST, and some that fail."""

from __future__ import annotations

from typing import Any

import numpy as np

from ghost_ray.gaussians import Gaussians
from ghost_ray.rows import Floats, Rows
from ghost_ray.scorers import Scorer, State
from ghost_ray.scorers.ghost import Ghost
from ghost_ray.scorers.ghost_gpd import GhostGPD
from ghost_ray.scorers.msp import MSP


class Robust(Ghost):
    """GHOST with every |z| cut at 3."""

    def score_finite(self, batch: Rows) -> Floats:
        mean, std = self.gaussians_.mean[batch.pred], self.gaussians_.std[batch.pred]
        z = np.minimum(np.abs(batch.embedding.astype(np.float64) - mean) / np.where(std > 0, std, np.inf), 3)
        found: Floats = batch.top_logit() / z.sum(axis=1)
        return found


class Wider(Ghost):
    """GHOST with 0.1 added to every σ."""

    def end_pass(self, pass_index: int, state: State) -> None:
        super().end_pass(pass_index, state)
        fitted = self.gaussians_
        self.gaussians_ = Gaussians(fitted.mean, fitted.std + np.float32(0.1), fitted.count)


class WiderPareto(Wider, GhostGPD):
    """GHOST-GPD with the same."""


class Own(Ghost):
    """GHOST as it is, under another name."""


class CalledVariant(MSP):
    """MSP, by an author who sees a variant of GHOST in it."""

    rival = False


class Fails(Scorer):
    """A mistake in the author's code."""

    def __init__(self, kind: str = "value") -> None:
        self.kind = kind

    def score_finite(self, batch: Rows) -> Floats:
        return _deep_inside(self.kind, batch)


def _deep_inside(kind: str, batch: Rows) -> Any:
    if kind == "value":
        raise ValueError("operands could not be broadcast together")
    return batch.embedding[:, batch.embedding.shape[1]]
