"""Mistakes that the arrays reveal, from all labels and predictions and a sample of the rows."""

from __future__ import annotations

import numpy as np

from ghost_ray.checks import LabelCounts, LookedAt, of_logits, of_set, sample_places, sample_size
from ghost_ray.jobs.importing.import_plan import Plan
from ghost_ray.rows import Rows


def noticed(plan: Plan, predictions: np.ndarray) -> list[str]:
    """Notes on what is imported; ``predictions`` [N] are in the order of the arrays."""
    places = sample_places(len(plan.labels), sample_size(plan.features.shape[1] + plan.logits.shape[1]))
    features, logits = (np.asarray(array[places], np.float32) for array in (plan.features, plan.logits))
    kept = logits if plan.kept is None else logits[:, plan.kept]
    looked_at = LookedAt(
        LabelCounts.of(plan.labels, predictions),
        Rows(plan.labels[places], predictions[places], features, kept),
        plan.classes,
        plan.class_names,
        plan.head,
    )
    # Probabilities sum to 1 over the whole head only.
    whole_head = of_logits(logits) if plan.kept is not None else []
    return list(dict.fromkeys([*of_set(looked_at), *whole_head]))
