"""Free energy."""

from __future__ import annotations

from ghost_ray.rows import Floats, Rows, logsumexp
from ghost_ray.scorers.catalogue import register
from ghost_ray.scorers.scorer import Scorer


@register
class Energy(Scorer):
    """T · logsumexp(ℓ / T).

    Liu et al., *Energy-based Out-of-distribution Detection*, NeurIPS 2020, https://arxiv.org/abs/2010.03759.

    Parameters
    ----------
    temperature : float, default 1
        T. Nothing is fitted.
    """

    name = "energy"
    title = "Energy"
    keeps = ()

    def __init__(self, temperature: float = 1.0) -> None:
        if temperature <= 0:
            raise ValueError(f"{self.name}: temperature must be positive, got {temperature}")
        self.temperature = temperature

    def score_finite(self, batch: Rows) -> Floats:
        if self.temperature == 1.0:
            return batch.energy
        return self.temperature * logsumexp(batch.logits, self.temperature)
