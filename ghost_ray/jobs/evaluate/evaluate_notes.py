"""Mistakes that the sets of an evaluation tell of, each by itself and beside the others; from samples of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ghost_ray.checks import LookedAt, TwinSearch, lacking_classes, of_distances, of_head, of_set, of_shared_rows
from ghost_ray.checks.agreement import LabelCounts
from ghost_ray.cluster.check_sample import look_at, some_groups
from ghost_ray.gaussians import Gaussians
from ghost_ray.jobs.evaluate.evaluate_plan import KNOWN, Plan
from ghost_ray.rows import Singles
from ghost_ray.store import RowGroups, Store

_KEPT_KNOWNS = 0.95  # by FPR95
_GROUPS = 16  # row groups of 8 MB that are searched for rows of other sets


def noticed(plan: Plan, gaussians: Gaussians | None) -> list[str]:
    """Notes on the sets; ``gaussians`` are GHOST's, where it is among the methods."""
    fit = look_at(plan.fit.store)
    sets = {name: look_at(reader.store) for name, reader in plan.sets.items()}
    notes = [f"fit: {note}" for note in of_set(fit, negative_top_logits=False)]
    for name, looked_at in sets.items():
        notes += [f"{name}: {note}" for note in of_set(looked_at, negative_top_logits=False)]
    notes += _of_heads(plan, fit, sets)
    notes += lacking_classes(sets[KNOWN].labels, fit.labels, plan.sets[KNOWN].store.class_name)
    notes += _of_shared_rows(plan, sets)
    if gaussians is not None:
        notes += _of_absent_classes(sets[KNOWN].labels, gaussians)
        notes += of_distances(sets[KNOWN].sample, gaussians)
    return notes


def _of_absent_classes(known: LabelCounts, gaussians: Gaussians) -> list[str]:
    """A note where knowns are predicted as classes of the head that neither they nor the training set have."""
    absent = np.setdiff1d(gaussians.missing, known.label)
    outside = int(known.n[np.isin(known.pred, absent)].sum())
    if not outside:
        return []
    meaningless = outside > (1 - _KEPT_KNOWNS) * known.rows
    return [
        f"ghost: {outside:,} of {known.rows:,} knowns are predicted as one of {len(absent):,} classes "
        "of the head that no set has: they score −inf"
        + ("; FPR95 is then 1 on any unknown set and means nothing" if meaningless else "")
        + ". Narrow the head: extract or import fit with `--restrict` and the others with `--restrict-like`; of arrays "
        "in Python, leave out these columns of the logits"
    ]


def _of_heads(plan: Plan, fit: LookedAt, sets: dict[str, LookedAt]) -> list[str]:
    """Stores that carry logits, beside one that carries the head that these should come from."""
    readers = [("fit", plan.fit, fit), *((name, reader, sets[name]) for name, reader in plan.sets.items())]
    head = next((reader.head for _, reader, _ in readers if reader.head is not None), None)
    if head is None:
        return []
    return [
        f"{name}: {note}"
        for name, reader, looked_at in readers
        if reader.head is None
        for note in of_head(looked_at.sample, head)
    ]


def _of_shared_rows(plan: Plan, sets: dict[str, LookedAt]) -> list[str]:
    """Known rows that were fitted on, and unknown rows that are known."""
    fit, known = plan.fit.store, plan.sets[KNOWN].store
    labels, groups = _groups_of_some_classes(fit, sets[KNOWN].sample.label)
    samples = {name: looked_at.sample for name, looked_at in sets.items()}
    unknown = {name: sample for name, sample in samples.items() if name != KNOWN}
    of_these_classes = samples[KNOWN].take(np.isin(samples[KNOWN].label, labels))
    notes: list[str] = []
    for other, store, searched, wanted in (
        ("fit", fit, groups, {KNOWN: of_these_classes, **unknown}),
        (KNOWN, known, some_groups(known, _GROUPS), unknown),
    ):
        searches = {name: TwinSearch(sample.embedding) for name, sample in wanted.items()}
        for embedding in _embeddings(store, searched):
            for search in searches.values():
                search.look_in(embedding)
        for name, search in searches.items():
            notes += of_shared_rows(int(search.found.sum()), search.rows, sets[name].labels.rows, name, other)
    return notes


def _groups_of_some_classes(store: Store, labels: np.ndarray) -> tuple[list[int], list[RowGroups]]:
    """As many of the labels as lie in a few row groups, and these; labels are taken in a random, fixed order."""
    groups: dict[RowGroups, None] = {}
    taken: list[int] = []
    for label in np.random.default_rng(0).permutation(np.unique(labels)).tolist():
        more = groups | dict.fromkeys(store.class_row_groups(label))
        if len(more) > _GROUPS:
            break
        groups, taken = more, [*taken, label]
    return taken, list(groups)


def _embeddings(store: Store, groups: list[RowGroups]) -> Iterator[Singles]:
    for group in groups:
        for rows in store.batches(group, logits=False):
            yield rows.embedding
