"""``import``: embeddings and logits that somebody else computed, as .npy arrays, become a store."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import pyarrow as pa

from ghost_ray.config import ImportConfig
from ghost_ray.errors import InputError, one_line
from ghost_ray.files import OutputFolder, redact
from ghost_ray.manifest import Data, Network, provenance
from ghost_ray.progress import progress
from ghost_ray.store import (
    UNKNOWN,
    ClusteredWriter,
    StoreManifest,
    finish_store,
    row_schema,
    to_table,
    write_head,
)
from ghost_ray.tensors import read_tensors

_CHUNK_ROWS = 4096
_HEAD_TOLERANCE = 1e-3


def run(config: ImportConfig) -> dict[str, Any]:
    """Import arrays into a store; returns what was written."""
    features = _load(config.features, "--features", 2)
    logits = _load(config.logits, "--logits", 2)
    if len(features) != len(logits):
        raise InputError("--logits", config.logits, f"has {len(logits)} rows, --features has {len(features)}")
    if len(features) == 0:
        raise InputError("--features", config.features, "has no rows", "export at least one")
    labels, features, logits = _labels(config, features, logits)
    dimensions, classes = features.shape[1], logits.shape[1]
    bad = np.flatnonzero((labels < UNKNOWN) | (labels >= classes))
    if len(bad):
        field = "--labels" if config.labels else "--features"
        value = config.labels or config.features
        raise InputError(field, value, f"row {bad[0]} has label {labels[bad[0]]}, allowed are −1…{classes - 1}")
    head = _head(config.head, features, logits) if config.head else None
    names = _class_names(config.class_names, classes) if config.class_names else None

    with OutputFolder(config.out, overwrite=config.overwrite) as output:
        schema = row_schema(dimensions, None if head else classes)
        writer = ClusteredWriter(output.staging, "part", schema)
        order = np.argsort(labels, kind="stable")
        width = len(str(len(order)))
        correct = 0
        with progress("import", len(order), "rows") as shown:
            for start in range(0, len(order), _CHUNK_ROWS):
                at = order[start : start + _CHUNK_ROWS]
                embedding = _finite(features, at, "--features", config.features)
                scores = _finite(logits, at, "--logits", config.logits)
                prediction = scores.argmax(axis=1)
                correct += int((prediction == labels[at]).sum())
                keys = pa.array([f"{row:0{width}d}" for row in at.tolist()])
                writer.write(to_table(keys, labels[at], prediction, embedding, None if head else scores))
                shown.advance(len(at))
        files = writer.close()
        if head:
            write_head(output.staging, *head)
        network = Network(name=config.model, classes=classes, dimensions=dimensions)
        manifest = StoreManifest(
            **provenance(config),
            network=network,
            data=[Data(uri=redact(os.path.abspath(config.features)), kind="npy")],
            rows=len(order),
            layout="clustered",
            files=files,
            class_names=names,
            has_head=head is not None,
        )
        finish_store(output.staging, manifest)
        output.publish()
    known = int((labels != UNKNOWN).sum())
    return {
        "store": config.out,
        "rows": len(order),
        "classes": classes,
        "dimensions": dimensions,
        "known": known,
        "accuracy": correct / known if known else None,
        "head": head is not None,
    }


def _load(path: str, field: str, axes: int) -> np.ndarray:
    """A numeric .npy array of ``axes`` axes, mapped rather than read."""
    if not os.path.isfile(path):
        raise InputError(field, path, "does not exist", "name a .npy file")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise InputError(
            field, path, f"is no readable .npy array: {one_line(error)}", "save it with numpy.save"
        ) from None
    if not isinstance(array, np.ndarray) or array.ndim != axes or array.dtype.kind not in "fiu":
        shape = getattr(array, "shape", None)
        raise InputError(field, path, f"has shape {shape}, a numeric array of {axes} axes is needed")
    return array


def _labels(
    config: ImportConfig, features: np.ndarray, logits: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels [N], and both arrays without the ground-truth column where that is how they came."""
    if config.labels:
        labels = _load(config.labels, "--labels", 1)
        if len(labels) != len(features):
            raise InputError("--labels", config.labels, f"has {len(labels)} rows, --features has {len(features)}")
        given = np.asarray(labels)
    else:
        if features.shape[1] < 2 or logits.shape[1] < 2:
            raise InputError("--features", config.features, "column 0 must be the ground truth", "or give --labels")
        given, other = np.asarray(features[:, 0]), np.asarray(logits[:, 0])
        if not config.unknown and not np.array_equal(given, other):
            row = int(np.flatnonzero(given != other)[0])
            raise InputError(
                "--features",
                config.features,
                f"column 0 is not the same in both arrays (row {row}: {given[row]} and {other[row]})",
                "without a ground-truth column give --labels, or --unknown with --labels absent from both",
            )
        features, logits = features[:, 1:], logits[:, 1:]
    if config.unknown:
        return np.full(len(features), UNKNOWN, np.int32), features, logits
    whole = np.rint(given)
    if not (np.isfinite(given).all() and np.array_equal(whole, given)):
        raise InputError("--labels", config.labels or config.features, "labels must be whole numbers")
    return whole.astype(np.int32), features, logits


def _finite(array: np.ndarray, rows: np.ndarray, field: str, path: str) -> np.ndarray:
    taken = np.asarray(array[rows], dtype=np.float32)
    if not np.isfinite(taken).all():
        row = rows[np.flatnonzero(~np.isfinite(taken).all(axis=1))[0]]
        raise InputError(field, path, f"row {row} holds a NaN or an infinity (as float32)", "repair or drop it")
    return taken


def _head(path: str, features: np.ndarray, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The linear head of the file, proven on the first rows: head(features) must be the logits."""
    tensors = read_tensors(path, "--head", path)
    weight, bias = tensors.get("weight"), tensors.get("bias")
    shape = (logits.shape[1], features.shape[1])
    if weight is None or weight.shape != shape or (bias is not None and bias.shape != shape[:1]):
        raise InputError("--head", path, f"holds no weight of shape {shape} with bias {shape[:1]}")
    weight = weight.astype(np.float32)
    bias = np.zeros(shape[0], np.float32) if bias is None else bias.astype(np.float32)
    sample = np.asarray(features[:64], np.float32)
    expected = np.asarray(logits[:64], np.float32)
    error = float(np.abs(sample @ weight.T + bias - expected).max())
    if not error <= _HEAD_TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise InputError("--head", path, f"head(features) differs from --logits by up to {error:.3g}", "leave it out")
    return weight, bias


def _class_names(path: str, classes: int) -> list[str]:
    try:
        with open(path, encoding="utf-8") as handle:
            text = handle.read(64 << 20)
        names = json.loads(text) if text.lstrip().startswith("[") else text.splitlines()
    except (OSError, ValueError) as error:
        raise InputError("--class-names", path, f"cannot be read: {one_line(error)}") from None
    if len(names) != classes:
        raise InputError("--class-names", path, f"has {len(names)} names, the logits have {classes} classes")
    return [str(name) for name in names]
