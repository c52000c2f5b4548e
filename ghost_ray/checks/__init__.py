"""Checks for mistakes in the data: pure functions of arrays that return one sentence per finding.

Nothing is refused here: the data may be right. Each function returns notes, which the jobs keep in manifests and
results, and which page and terminal show.

agreement      do the labels match the predictions, and would another numbering of the classes fit?
logit_values   are the logits logits?
features       are the features what the head reads, row by row?
twins          rows that two sets have in common
sets           what one set and several sets are checked for, from a sample of each
"""

from ghost_ray.checks.agreement import LabelCounts, of_labels
from ghost_ray.checks.features import of_distances, of_features
from ghost_ray.checks.logit_values import of_logits, of_negative_top_logits
from ghost_ray.checks.sets import LookedAt, lacking_classes, of_head, of_set, of_shared_rows, sample_places, sample_size
from ghost_ray.checks.twins import TwinSearch

__all__ = [
    "LabelCounts",
    "LookedAt",
    "TwinSearch",
    "lacking_classes",
    "of_distances",
    "of_features",
    "of_head",
    "of_labels",
    "of_logits",
    "of_negative_top_logits",
    "of_set",
    "of_shared_rows",
    "sample_places",
    "sample_size",
]
