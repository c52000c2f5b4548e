"""Checks of one set, and of several sets together, from all labels and a sample of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ghost_ray.checks.agreement import LabelCounts, of_labels
from ghost_ray.checks.features import of_features, other_order
from ghost_ray.checks.logit_values import of_logits, of_negative_top_logits
from ghost_ray.rows import Head, Ints, Rows

_SAMPLE_ROWS, _FEWEST_ROWS = 2048, 256
_SAMPLE_BYTES = 64 << 20
HEAD_TOLERANCE = 1e-3  # how far logits may be from those of the head, relative to the largest
_NAMED = 5


@dataclass(frozen=True, eq=False)
class LookedAt:
    """The data that checks use: the labels and predictions of all rows, and a sample of the rows.

    The sample has logits where they came with the features. If ``head`` is given, the logits follow from the features
    by the network's own last layer, so the features are certain.
    """

    labels: LabelCounts
    sample: Rows
    classes: int
    class_names: Sequence[str] | None = None
    head: Head | None = None


def of_set(looked_at: LookedAt, *, negative_top_logits: bool = True) -> list[str]:
    """All checks of a single set."""
    sample = looked_at.sample
    notes = of_labels(looked_at.labels, looked_at.classes, looked_at.class_names)
    odd: list[str] = []
    if looked_at.head is None:
        moved = other_order(sample)
        if moved is not None:
            # If only the logits are in another order, labels that do not match them are the same mistake.
            notes = [moved.note] if moved.logits_alone else [*notes, moved.note]
        notes += of_features(sample)
        odd = of_logits(sample.logits) if sample.has_logits else []
    if negative_top_logits and not odd and (sample.has_logits or looked_at.head is not None):
        negative = int(np.count_nonzero(sample.top_logit(looked_at.head) < 0))
        whole = len(sample) == looked_at.labels.rows
        odd = of_negative_top_logits({"rows" if whole else "checked rows": (negative, len(sample))})
    return notes + odd


def of_head(rows: Rows, head: Head) -> list[str]:
    """A note where the logits that rows came with do not follow from their features and the head."""
    error = head_error(rows, head)
    if error <= HEAD_TOLERANCE:
        return []
    return [f"the logits do not follow from the features and the head: they are off by {error:.2g} of the largest"]


def head_error(rows: Rows, head: Head) -> float:
    """The largest difference between logits and those of the head, relative to the largest logit (at least 1)."""
    if not len(rows):
        return 0.0
    largest = max(1.0, float(np.abs(rows.logits).max()))
    return float(np.abs(head.logits(rows.embedding) - rows.logits).max()) / largest


def lacking_classes(known: LabelCounts, fit: LabelCounts, name: Callable[[int], str]) -> list[str]:
    """A note if the known test set has classes without a row in the training set."""
    lacking = np.setdiff1d(known.label[known.label >= 0], fit.label)
    if not len(lacking):
        return []
    named = ", ".join(name(int(k)) for k in lacking[:_NAMED]) + (", …" if len(lacking) > _NAMED else "")
    lack = np.isin(known.label, lacking)
    rows = int(known.n[lack].sum())
    have = "class of known has" if len(lacking) == 1 else "classes of known have"
    return [f"{len(lacking):,} {have} no row in fit: {named} ({rows:,} of {known.rows:,} knowns)"]


def of_shared_rows(found: int, looked_for: int, rows: int, mine: str, other: str) -> list[str]:
    """A note where rows of one set are also in another.

    Parameters
    ----------
    found, looked_for, rows : int
        Rows with a twin, rows that were searched, and rows of the set.
    mine, other : str
        What the sets are called.
    """
    if not found:
        return []
    sample = "" if looked_for == rows else "checked "
    return [f"{found:,} of {looked_for:,} {sample}rows of {mine} are also in {other}"]


def sample_size(width: int) -> int:
    """The number of rows in a sample: a few thousand, fewer if the rows are very wide."""
    return min(_SAMPLE_ROWS, max(_FEWEST_ROWS, _SAMPLE_BYTES // (4 * width)))


def sample_places(rows: int, size: int) -> Ints:
    """Positions of a random sample of rows in ascending order, always the same; all positions if there are few."""
    if rows <= size:
        return np.arange(rows)
    return np.sort(np.random.default_rng(rows).choice(rows, size, replace=False))
