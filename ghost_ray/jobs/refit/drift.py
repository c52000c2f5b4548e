"""How a version differs from the one before it: ``drift.json``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ghost_ray.model import Model
from ghost_ray.registry import Summary, VersionManifest

_WORST = 20


def drift(
    version: str,
    summary: Summary,
    changed: list[str],
    model: Model,
    previous: VersionManifest | None,
    previous_model: Model | None,
) -> dict[str, Any]:
    """The content of ``drift.json``; pairs are [before, now], None if there is nothing to name."""
    before: Summary = previous.summary if previous else {}
    sets = [*(before.get("auoscr") or {}), *(summary.get("auoscr") or {})]
    names, names_before = _fitted_classes(model), _fitted_classes(previous_model)
    return {
        "previous": previous.version if previous else None,
        "current": version,
        "changed": changed,
        "accuracy": [before.get("accuracy"), summary.get("accuracy")],
        "rejected_fraction": [before.get("rejected_fraction"), summary.get("rejected_fraction")],
        "auoscr": {
            name: [(before.get("auoscr") or {}).get(name), (summary.get("auoscr") or {}).get(name)]
            for name in dict.fromkeys(sets)
        },
        "rows": [previous.rows if previous else None, model.manifest.rows],
        "classes_gained": [name for name in names if name not in set(names_before)] if previous else [],
        "classes_lost": [name for name in names_before if name not in set(names)],
        "mean_shift": mean_shift(previous_model, model) if previous_model else None,
    }


def mean_shift(before: Model, now: Model) -> dict[str, Any] | None:
    """How far the classes' means moved: by class, the mean over the dimensions of |new − old| in units of old σ.

    Constant dimensions do not count. None if the two have different classes or dimensions. After a change of weights
    the axes themselves may differ, and a large shift may mean only that.
    """
    old, new = before.gaussians, now.gaussians
    if old.mean.shape != new.mean.shape:
        return None
    both = np.flatnonzero(old.present & new.present)
    if not len(both):
        return None
    used = old.std[both] > 0
    z = np.abs(new.mean[both].astype(np.float64) - old.mean[both]) * old.inverse_std[both]
    shift = np.where(used, z, 0).sum(axis=1) / np.maximum(used.sum(axis=1), 1)
    worst = np.argsort(-shift, kind="stable")[:_WORST]
    return {
        "median": float(np.median(shift)),
        "largest": float(shift.max()),
        "classes": [
            {"class": int(both[k]), "name": _class_name(now, int(both[k])), "shift": float(shift[k])} for k in worst
        ],
    }


def _fitted_classes(model: Model | None) -> list[str]:
    return [] if model is None else [_class_name(model, int(k)) for k in np.flatnonzero(model.gaussians.present)]


def _class_name(model: Model, index: int) -> str:
    names = model.manifest.class_names
    return names[index] if names is not None and index < len(names) else str(index)
