"""The checked plan of an import: arrays that belong together, labels of the head's classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ghost_ray.config import ImportConfig
from ghost_ray.errors import InputError, redact
from ghost_ray.jobs.importing.choosing import column, load, matrix, open_given, text_column
from ghost_ray.jobs.importing.head_choice import mismatch, read_head
from ghost_ray.jobs.importing.label_column import narrowed, read_class_names, read_labels
from ghost_ray.jobs.importing.readers import ArrayFile
from ghost_ray.jobs.importing.readers.customary import means
from ghost_ray.jobs.importing.workspace import Workspace
from ghost_ray.rows import Head
from ghost_ray.store import UNKNOWN, Store


@dataclass(frozen=True)
class Plan:
    """Mapped arrays and what is known about them; classes are those of the head after ``restrict``."""

    kind: str  # of the features' file
    features: np.ndarray  # [N, D], as they came
    logits: np.ndarray  # [N, K of the whole head], as they came
    labels: np.ndarray  # [N] int32
    keys: pa.Array | None  # [N]
    head: Head | None
    class_names: list[str] | None
    kept: list[int] | None  # the classes of the whole head that are left
    notes: list[str]

    @property
    def classes(self) -> int:
        return self.logits.shape[1] if self.kept is None else len(self.kept)

    @property
    def dimensions(self) -> int:
        return int(self.features.shape[1])


def make_plan(config: ImportConfig, workspace: Workspace) -> Plan:
    """Open and check all inputs; InputError describes the first problem."""
    notes: list[str] = []
    file = open_given(config.features, "features", workspace)
    features = matrix(load(file, config.features, "features"), config.features, "features", notes)
    if len(features) == 0:
        raise InputError("features", redact(config.features), "has no rows", "export at least one")
    logits_file = open_given(config.logits, "logits", workspace)
    logits = matrix(load(logits_file, config.logits, "logits"), config.logits, "logits", notes)
    _same_rows(len(logits), len(features), "logits", config.logits)
    truth, features, logits = _truth(config, file, features, logits, workspace, notes)
    classes = logits.shape[1]
    names = read_class_names(config.class_names, classes) if config.class_names else None
    field, given = ("labels", config.labels) if config.labels else ("features", config.features)
    if config.unknown:
        labels = np.full(len(features), UNKNOWN, np.int32)
    else:
        assert truth is not None
        read = read_labels(truth, classes, names, field=field, given=given)
        labels, names = read.index, read.class_names
    kept = _kept(config, labels, classes)
    if kept is not None:
        labels = narrowed(labels, kept, classes, field=field, given=given)
        names = None if names is None else [names[index] for index in kept]
    head = _proven_head(config, features, logits, workspace, notes)
    if head is not None and kept is not None:
        head = Head(head.weight[kept], head.bias[kept])
    keys = _keys(config.keys, len(features), workspace) if config.keys else None
    return Plan(file.kind, features, logits, labels, keys, head, names, kept, notes)


def _same_rows(found: int, wanted: int, field: str, given: str) -> None:
    if found != wanted:
        raise InputError(field, redact(given), f"has {found} rows, `features` has {wanted}")


def _truth(
    config: ImportConfig,
    file: ArrayFile,
    features: np.ndarray,
    logits: np.ndarray,
    workspace: Workspace,
    notes: list[str],
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """Labels as given [N], and both arrays without their ground-truth column, if they have one."""
    beside = [entry for entry in file.entries if means(entry.name, "labels")]
    if config.labels:
        labels_file = open_given(config.labels, "labels", workspace)
        labels = column(load(labels_file, config.labels, "labels"), config.labels, "labels")
        _same_rows(len(labels), len(features), "labels", config.labels)
        return labels, features, logits
    if len(beside) == 1 and len(file.entries) > 1:
        labels = column(load(file, f"{config.features}#{beside[0].name}", "features"), config.features, "features")
        _same_rows(len(labels), len(features), "features", config.features)
        if not config.unknown:
            notes.append(f"labels: taken from {beside[0].name} in the file of the features")
        return labels, features, logits
    if features.shape[1] > 1 and logits.shape[1] > 1:
        given, other = np.asarray(features[:, 0]), np.asarray(logits[:, 0])
        if np.array_equal(given, other):
            return given, features[:, 1:], logits[:, 1:]
        if not config.unknown:
            row = int(np.flatnonzero(given != other)[0])
            raise InputError(
                "features",
                redact(config.features),
                f"column 0 is not the same in both arrays (row {row}: {given[row]} and {other[row]}), so it is not "
                "the ground truth",
                "give `labels`, or `unknown` if there are none",
            )
        notes.append("column 0 is not the same in both arrays: it was treated as a value, not as the ground truth")
    elif not config.unknown:
        raise InputError("features", redact(config.features), "column 0 must be the ground truth", "or give `labels`")
    return None, features, logits


def _kept(config: ImportConfig, labels: np.ndarray, classes: int) -> list[int] | None:
    if config.restrict_like is not None:
        kept = Store.open(config.restrict_like, "restrict_like").manifest.network.restricted_to
        if kept is not None and max(kept) >= classes:
            problem = f"kept class {max(kept)} of its head, these logits have {classes} classes"
            raise InputError("restrict_like", redact(config.restrict_like), problem)
        return kept
    if not config.restrict:
        return None
    present: list[int] = np.unique(labels[labels != UNKNOWN]).tolist()
    if not present:
        raise InputError("restrict", True, "there is no known class in the labels to narrow the head to")
    return present


def _proven_head(
    config: ImportConfig, features: np.ndarray, logits: np.ndarray, workspace: Workspace, notes: list[str]
) -> Head | None:
    """The linear head, if it gives the logits of a sample of the rows; else the logits are kept."""
    if not config.head:
        return None
    head = read_head(config.head, logits.shape[1], features.shape[1], workspace)
    problem = mismatch(head, features, logits)
    if problem is None:
        return head
    notes.append(problem)
    return None


def _keys(given: str, rows: int, workspace: Workspace) -> pa.Array:
    values = column(load(open_given(given, "keys", workspace), given, "keys"), given, "keys")
    _same_rows(len(values), rows, "keys", given)
    if values.dtype.kind == "f":
        raise InputError("keys", redact(given), f"holds numbers of type {values.dtype}, expected names")
    keys = text_column(values, given, "keys")
    if keys.null_count:
        row = int(np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError("keys", redact(given), f"row {row} has no key")
    if len(pc.unique(keys)) < rows:
        twice = next(entry["values"] for entry in keys.value_counts().to_pylist() if entry["counts"] > 1)
        raise InputError("keys", redact(given), f"{twice!r} names more than one row", "a key names one row")
    return keys
