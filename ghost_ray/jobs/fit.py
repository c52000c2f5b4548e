"""``fit``: one Gaussian per class and dimension, from the correctly classified rows of a store, in one pass.

Tasks read row groups of the store and keep count, mean and M2 of the classes they meet; the parts are merged in a tree
that depends on the store alone, so any number of workers gives the same bytes.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from ghost_ray.checks import of_labels, of_set
from ghost_ray.cluster import map_merge, workers
from ghost_ray.cluster.check_sample import count_labels, look_at
from ghost_ray.config import FitConfig
from ghost_ray.errors import InputError, one_line, redact
from ghost_ray.files import OutputFolder
from ghost_ray.files.manifest import Data, difference, provenance
from ghost_ray.gaussians import Accumulator
from ghost_ray.model import Model, ModelManifest, write_model
from ghost_ray.progress import progress
from ghost_ray.store import ClassCount, RowGroups, Store

# Merging costs about as much as reading this many times the accumulator's own size would.
_SHARD_PER_ACCUMULATOR = 8


class ThinClasses(TypedDict):
    """Classes with fewer samples than there are dimensions."""

    classes: int
    smallest: list[ClassCount]


class ConstantCells(TypedDict):
    """Class × dimension cells whose samples are all equal."""

    cells: int
    dimensions_in_every_class: list[int]


class Findings(TypedDict):
    """What a person should know about a fit."""

    rows: int
    rows_used: int
    classes: int
    dimensions: int
    missing: list[ClassCount]
    thin: ThinClasses
    constant: ConstantCells


class FitResult(Findings):
    """What ``fit`` returns."""

    model: str
    store: str
    network: str
    notes: list[str]


def run(config: FitConfig, statistics: Accumulator | None = None) -> FitResult:
    """Fit a store into a model; returns what a person should know about it.

    Parameters
    ----------
    config : FitConfig
    statistics : Accumulator, optional
        The store's statistics where they are known already, merged from those of its parts.
    """
    store = Store.open(config.store, verify=config.verify)
    made_from = store.fingerprint()
    output = OutputFolder(
        config.out,
        kind="model",
        overwrite=config.overwrite,
        differs=lambda made: difference(made, config, [made_from]),
    )
    if output.finished:
        model = Model.open(config.out, "out")
        statistics = model.statistics()
        assert statistics is not None  # a fit always writes them
        return _result(config, store, model.manifest.notes, describe(statistics, store))
    with output, workers(config):
        if statistics is None:
            statistics = fit_store(store)
        _require_a_gaussian(statistics, store)
        findings = describe(statistics, store)
        notes = of_set(look_at(store))
        manifest = ModelManifest(
            **provenance(config),
            network=store.manifest.network,
            data=[Data(uri=redact(store.uri), kind="store", fingerprint=made_from)],
            rows=findings["rows_used"],
            class_names=store.manifest.class_names,
            missing_classes=len(findings["missing"]),
            thin_classes=findings["thin"]["classes"],
            constant_dimensions=findings["constant"]["cells"],
            notes=notes,
        )
        write_model(output.staging, None, statistics, manifest)
        output.publish()
    return _result(config, store, notes, findings)


def _result(config: FitConfig, store: Store, notes: list[str], findings: Findings) -> FitResult:
    return {
        "model": config.out,
        "store": config.store,
        "network": store.manifest.network.describe(),
        "notes": notes,
        **findings,
    }


def fit_store(store: Store, title: str = "fit") -> Accumulator:
    """Statistics of all classes of a store, from its correctly classified rows; needs a connected Ray, or ``workers``.

    Parameters
    ----------
    store : Store
        Its classes and dimensions are those of the result; rows with an unknown label add nothing.
    title : str
        What the progress is called.

    Returns
    -------
    Accumulator
        Its arrays may be in Ray's object store: use or copy them before Ray is shut down.

    Raises
    ------
    InputError
        If a row cannot be used, naming it.
    """
    shards = _shards(store)
    rows = {id(shard): sum(groups.rows for groups in shard) for shard in shards}
    merged: Accumulator | None = None
    if shards:
        with progress(title, sum(rows.values()), "rows") as shown:
            merged = map_merge(_accumulate, shards, _merge, store, done=lambda shard: shown.advance(rows[id(shard)]))
        if merged.first_class == 0 and merged.stop_class == store.classes:
            return merged
    # Only now: rows that are not as the manifest describes them were refused before its sizes are believed.
    whole = Accumulator.empty(store.classes, store.dimensions)
    if merged is not None:
        whole.merge(merged)
    return whole


def _require_a_gaussian(statistics: Accumulator, store: Store) -> None:
    if not (statistics.count >= 2).any():
        noticed = of_labels(count_labels(store), store.classes, store.manifest.class_names)
        raise InputError(
            "store",
            redact(store.uri),
            "; ".join(["no class has two correctly classified rows", *noticed]),
            "fit on a store of labelled training images",
        )


def _shards(store: Store) -> list[list[RowGroups]]:
    """The labelled row groups of the store, by task; the same for any number of workers."""
    row_bytes = 4 * store.dimensions
    shards: list[list[RowGroups]] = []
    wanted = size = 0
    for groups in store.row_groups():
        if groups.last_label < 0:
            continue
        if not shards or size >= wanted:
            shards.append([])
            wanted = size = 0
        shards[-1].append(groups)
        size += groups.rows * row_bytes
        first = min(p.first_label for p in shards[-1])
        last = max(p.last_label for p in shards[-1])
        wanted = _SHARD_PER_ACCUMULATOR * 16 * store.dimensions * (last - max(first, 0) + 1)
    return shards


def _accumulate(shard: list[RowGroups], store: Store) -> Accumulator:
    first = max(0, min(groups.first_label for groups in shard))
    last = max(groups.last_label for groups in shard)
    part = Accumulator.empty(last - first + 1, store.dimensions, first_class=first)
    for groups in shard:
        for rows in store.batches(groups, logits=False):
            used = rows.correct
            try:
                part.update(rows.embedding, rows.label, where=used)
            except ValueError as error:
                store.refuse_non_finite(rows, groups)
                raise store.broken(groups.file, one_line(error)) from None
            store.refuse_unused_non_finite(rows, used, groups)
    return part


def _merge(parts: list[Accumulator]) -> Accumulator:
    whole = parts.pop(0)
    while parts:
        whole.merge(parts.pop(0))
    return whole


def describe(statistics: Accumulator, store: Store) -> Findings:
    """What a person should know about a fit: rows used, classes without a Gaussian, thin classes, constants."""
    count = statistics.count
    spread = np.zeros(store.dimensions, np.float32)
    constant = 0
    for part in statistics.finish_in_blocks():
        spread = np.maximum(spread, np.max(part.std, axis=0, initial=0))
        constant += part.constant
    thin = np.flatnonzero((count >= 2) & (count < store.dimensions))
    return {
        "rows": store.rows,
        "rows_used": int(count.sum()),
        "classes": store.classes,
        "dimensions": store.dimensions,
        "missing": [store.class_count(k, count[k]) for k in np.flatnonzero(count < 2).tolist()],
        "thin": {
            "classes": len(thin),
            "smallest": [
                store.class_count(k, count[k]) for k in thin[np.argsort(count[thin], kind="stable")][:10].tolist()
            ],
        },
        "constant": {
            "cells": constant,
            "dimensions_in_every_class": np.flatnonzero(spread == 0).tolist(),
        },
    }
