"""The job: plan → rows in the order of their labels → the manifest last."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import pyarrow as pa

from ghost_ray.config import ImportConfig, places_of
from ghost_ray.errors import InputError, redact
from ghost_ray.files import OutputFolder, is_local, join, kind_of, names_in, resolve
from ghost_ray.files.download_cache import version_of
from ghost_ray.files.manifest import Data, Network, difference, provenance
from ghost_ray.jobs.importing.choosing import split_name
from ghost_ray.jobs.importing.import_notes import noticed
from ghost_ray.jobs.importing.import_plan import Plan, make_plan
from ghost_ray.jobs.importing.workspace import Workspace, workspace
from ghost_ray.progress import Progress, progress
from ghost_ray.store import (
    UNKNOWN,
    ClusteredWriter,
    RowFile,
    Store,
    StoreManifest,
    finish_store,
    row_keys,
    row_order,
    row_schema,
    to_table,
    write_head,
)

_CHUNK_ROWS = 4096
_CHUNK_NUMBERS = 1 << 25  # a few hundred MB with their copies, however long the rows are


@dataclass(frozen=True)
class _Written:
    """The rows of one store, before it has a manifest."""

    files: list[RowFile]
    rows: int
    known: int
    correct: int

    @property
    def accuracy(self) -> float | None:
        return self.correct / self.known if self.known else None


class ImportResult(TypedDict):
    """What ``import`` returns."""

    store: str
    rows: int
    classes: int
    dimensions: int
    known: int
    accuracy: float | None  # None if no row has a label
    head: bool
    unknown_store: str | None  # of the rows without a class, where they have a store of their own
    unknown_rows: int | None
    notes: list[str]


def run(config: ImportConfig) -> ImportResult:
    """Import arrays into a store, the rows without a class optionally into another; returns what was written."""
    made_from = _versions(config)
    outputs = [
        OutputFolder(
            place,
            kind="store",
            overwrite=config.overwrite,
            field=field,
            differs=lambda made: difference(made, config, [made_from]),
        )
        for field, place in (("out", config.out), ("unknown_out", config.unknown_out))
        if place is not None
    ]
    if all(output.finished for output in outputs):
        return _finished(config)
    with contextlib.ExitStack() as stack:
        for output in outputs:
            stack.enter_context(output)
        with workspace(outputs[0].staging) as space:
            plan = make_plan(config, space)
            parts = _parts(config, plan.labels)
            predictions = np.empty(len(plan.labels), np.int32)
            with progress("import", len(plan.labels), "rows") as shown:
                written = [
                    _write_rows(config, plan, rows, output.staging, space, shown, predictions)
                    for rows, output in zip(parts, outputs, strict=True)
                ]
            notes = [*plan.notes, *noticed(plan, predictions)]
        for part, output in zip(written, outputs, strict=True):
            _finish(config, plan, part, output.staging, notes, made_from)
        for output in outputs:
            output.publish()
    first, *others = written
    return {
        "store": config.out,
        "rows": first.rows,
        "classes": plan.classes,
        "dimensions": plan.dimensions,
        "known": first.known,
        "accuracy": first.accuracy,
        "head": plan.head is not None,
        "unknown_store": config.unknown_out,
        "unknown_rows": others[0].rows if others else None,
        "notes": notes,
    }


def _versions(config: ImportConfig) -> str:
    """One fingerprint of all files that are imported; it changes when one of them does."""
    facts: list[tuple[str, str, str]] = []
    for use in places_of(config):
        if not use.written:
            uri, name = split_name(use.uri)
            if use.field == "restrict_like":
                version = Store.open(uri, use.field).fingerprint()
            elif kind_of(uri) == "folder":
                version = repr([(file, version_of(join(uri, file), use.field)) for file in names_in(uri)])
            else:
                version = version_of(uri, use.field)
            facts.append((use.field, name, version))
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _finished(config: ImportConfig) -> ImportResult:
    """What was returned when the stores were made."""
    store = Store.open(config.out, "out")
    other = Store.open(config.unknown_out, "unknown_out") if config.unknown_out else None
    labels = [store.read_small(groups, "label")["label"].to_numpy() for groups in store.row_groups()]
    return {
        "store": config.out,
        "rows": store.rows,
        "classes": store.classes,
        "dimensions": store.dimensions,
        "known": sum(int((part != UNKNOWN).sum()) for part in labels),
        "accuracy": store.manifest.accuracy,
        "head": store.manifest.has_head,
        "unknown_store": config.unknown_out,
        "unknown_rows": other.rows if other else None,
        "notes": store.manifest.notes,
    }


def _parts(config: ImportConfig, labels: np.ndarray) -> list[np.ndarray]:
    """The rows of each store in the order of their labels."""
    order = row_order(labels)
    if not config.unknown_out:
        return [order]
    unknown = int((labels == UNKNOWN).sum())
    if unknown in (0, len(labels)):
        given = redact(config.labels or config.features)
        problem = "has no row labelled −1 to put there" if unknown == 0 else "has no row with a class"
        hint = "leave it out" if unknown == 0 else "use `unknown` and `out` alone"
        raise InputError("unknown_out", config.unknown_out, f"{given} {problem}", hint)
    return [order[unknown:], order[:unknown]]


def _write_rows(
    config: ImportConfig,
    plan: Plan,
    rows: np.ndarray,
    folder: str,
    space: Workspace,
    shown: Progress,
    predictions: np.ndarray,
) -> _Written:
    """Write some rows of the arrays, and their predictions into ``predictions``."""
    writer = ClusteredWriter(folder, "part", row_schema(plan.dimensions, None if plan.head else plan.classes))
    correct = 0
    step = max(1, min(_CHUNK_ROWS, _CHUNK_NUMBERS // (plan.dimensions + plan.logits.shape[1])))
    for start in range(0, len(rows), step):
        at = rows[start : start + step]
        labels = plan.labels[at]
        embedding = _finite(plan.features, at, "features", config.features)
        logits = _finite(plan.logits, at, "logits", config.logits)
        if plan.kept is not None:
            logits = logits[:, plan.kept]
        prediction = predictions[at] = logits.argmax(axis=1)
        correct += int((prediction == labels).sum())
        writer.write(to_table(_keys(plan, at), labels, prediction, embedding, None if plan.head else logits))
        space.used(embedding.nbytes + logits.nbytes)
        shown.advance(len(at))
    known = int((plan.labels[rows] != UNKNOWN).sum())
    return _Written(writer.close(), len(rows), known, correct)


def _keys(plan: Plan, at: np.ndarray) -> pa.Array:
    """The rows' own names, or their numbers in the arrays."""
    if plan.keys is not None:
        return plan.keys.take(pa.array(at))
    return row_keys(at, len(plan.labels))


def _finite(array: np.ndarray, rows: np.ndarray, field: str, given: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        taken = np.asarray(array[rows], dtype=np.float32)
    if not np.isfinite(taken).all():
        row = rows[np.flatnonzero(~np.isfinite(taken).all(axis=1))[0]]
        problem = f"row {row} holds a NaN or an infinity (as float32)"
        raise InputError(field, redact(given), problem, "repair or drop it")
    return taken


def _finish(config: ImportConfig, plan: Plan, part: _Written, folder: str, notes: list[str], made_from: str) -> None:
    if plan.head:
        write_head(folder, plan.head)
    uri = split_name(config.features)[0]
    manifest = StoreManifest(
        **provenance(config),
        network=Network(
            name=config.model,
            classes=plan.classes,
            dimensions=plan.dimensions,
            restricted_to=plan.kept,
            head_sha256=plan.head.sha256() if plan.head else None,
        ),
        data=[Data(uri=redact(resolve(uri)[1] if is_local(uri) else uri), kind=plan.kind, fingerprint=made_from)],
        rows=part.rows,
        layout="clustered",
        class_names=plan.class_names,
        has_head=plan.head is not None,
        notes=notes,
        accuracy=part.accuracy,
    )
    finish_store(folder, manifest, part.files)
