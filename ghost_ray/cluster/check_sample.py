"""A sample of a store for checks: all labels and predictions as counts, and some rows from a few of its row groups."""

from __future__ import annotations

import numpy as np

from ghost_ray.checks import LabelCounts, LookedAt, sample_places, sample_size
from ghost_ray.cluster.tasks import map_merge
from ghost_ray.rows import Rows
from ghost_ray.store import RowGroups, Store, numbers_of

_GROUPS = 4
_FILES = 4  # whose labels one task counts


def count_labels(store: Store) -> LabelCounts:
    """Count the labels and predictions of a store in tasks; needs a connected Ray, or ``workers``."""
    files = store.row_groups(1 << 62)
    lots = [files[start : start + _FILES] for start in range(0, len(files), _FILES)]
    nothing = np.empty(0, np.int64)
    return map_merge(_count, lots, LabelCounts.joined, store) if lots else LabelCounts.of(nothing, nothing)


def _count(files: list[RowGroups], store: Store) -> LabelCounts:
    tables = (store.read_small(groups, "label", "pred") for groups in files)
    return LabelCounts.joined(
        [LabelCounts.of(*(numbers_of(table[name]) for name in ("label", "pred"))) for table in tables]
    )


def look_at(store: Store) -> LookedAt:
    """The sample of a store for checks; reads a few megabytes beside the labels, always the same ones.

    Rows with a NaN are left out. Needs a connected Ray, or ``workers``.
    """
    counted = count_labels(store)
    head = store.head()
    groups = some_groups(store, _GROUPS)
    width = store.dimensions + (store.classes if head is None else 0)
    share = -(-sample_size(width) // max(1, len(groups)))
    parts = [part for group in groups for part in _some_rows(store, group, share)]
    nothing = np.empty(0, np.int32)
    sample = _joined(parts) if parts else Rows(nothing, nothing, np.empty((0, store.dimensions), np.float32))
    sample = sample.take(sample.finite)
    return LookedAt(counted, sample, store.classes, store.manifest.class_names, head)


def _joined(parts: list[Rows]) -> Rows:
    stored = all(part.has_logits for part in parts)
    return Rows(
        np.concatenate([part.label for part in parts]),
        np.concatenate([part.pred for part in parts]),
        np.concatenate([part.embedding for part in parts]),
        np.concatenate([part.logits for part in parts]) if stored else None,
    )


def some_groups(store: Store, most: int) -> list[RowGroups]:
    """A random sample of the row groups, at most ``most``, always the same."""
    groups = [group for group in store.row_groups(0) if group.rows]
    return [groups[place] for place in sample_places(len(groups), most)]


def _some_rows(store: Store, group: RowGroups, wanted: int) -> list[Rows]:
    """A sample of a row group's rows; of a very large one, from its beginning."""
    taken: list[Rows] = []
    for rows in store.batches(group):
        part = rows.take(sample_places(len(rows), wanted))
        taken.append(part)
        wanted -= len(part)
        if wanted <= 0:
            break
    return taken
