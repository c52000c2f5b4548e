"""A sample of a store for checks: all labels, and some rows from a few of its row groups."""

from __future__ import annotations

import numpy as np

from ghost_ray.checks.sets import LookedAt, sample_places, sample_size
from ghost_ray.rows import Rows
from ghost_ray.store.pieces import Piece
from ghost_ray.store.reader import Store

_GROUPS = 4


def look_at(store: Store) -> LookedAt:
    """The sample of a store for checks; reads a few megabytes, always the same ones. Rows with a NaN are left out."""
    label, pred = store.read_labels()
    head = store.head()
    groups = some_groups(store, _GROUPS)
    width = store.dimensions + (store.classes if head is None else 0)
    share = -(-sample_size(width) // max(1, len(groups)))
    parts = [part for group in groups for part in _some_rows(store, group, share)]
    sample = _joined(parts) if parts else Rows(label, pred, np.empty((0, store.dimensions), np.float32))
    sample = sample.take(sample.finite)
    return LookedAt(label, pred, sample, store.classes, store.manifest.class_names, head)


def _joined(parts: list[Rows]) -> Rows:
    stored = all(part.has_logits for part in parts)
    return Rows(
        np.concatenate([part.label for part in parts]),
        np.concatenate([part.pred for part in parts]),
        np.concatenate([part.embedding for part in parts]),
        np.concatenate([part.logits for part in parts]) if stored else None,
    )


def some_groups(store: Store, most: int) -> list[Piece]:
    """A random sample of the row groups, at most ``most``, always the same."""
    groups = [group for group in store.pieces(0) if group.rows]
    return [groups[place] for place in sample_places(len(groups), most)]


def _some_rows(store: Store, group: Piece, wanted: int) -> list[Rows]:
    """A sample of a row group's rows; of a very large one, from its beginning."""
    taken: list[Rows] = []
    for rows in store.batches(group):
        part = rows.take(sample_places(len(rows), wanted))
        taken.append(part)
        wanted -= len(part)
        if wanted <= 0:
            break
    return taken
