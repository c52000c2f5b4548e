"""Small stores with a known answer, written the way the jobs write them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ghost_ray.config import JobConfig
from ghost_ray.files.manifest import Data, Network, provenance
from ghost_ray.gaussians import Gaussians
from ghost_ray.model import Model, ModelManifest, write_model
from ghost_ray.rows import Head
from ghost_ray.store import (
    UNKNOWN,
    ClusteredWriter,
    Store,
    StoreManifest,
    finish_store,
    hash_keys,
    row_schema,
    to_table,
    write_rows,
)
from ghost_ray.store import write_head as write_head_file

NETWORK = "toy"


@dataclass(frozen=True)
class Toy:
    """A made-up network: classes are Gaussian clouds, the head points at their centres."""

    centres: np.ndarray  # [K, D]
    weight: np.ndarray  # [K, D] float32
    bias: np.ndarray  # [K] float32

    @classmethod
    def make(cls, rng: np.random.Generator, classes: int = 5, dimensions: int = 8, spread: float = 2.0) -> Toy:
        centres = rng.normal(0, spread, (classes, dimensions))
        weight = centres.astype(np.float32)
        return cls(centres, weight, (-0.5 * (centres**2).sum(1)).astype(np.float32))

    @property
    def classes(self) -> int:
        return len(self.centres)

    @property
    def dimensions(self) -> int:
        return self.centres.shape[1]

    def known(self, rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings [n, D] around the centres, and their labels [n] in ascending order."""
        label = np.sort(rng.integers(0, self.classes, rows))
        return (self.centres[label] + rng.normal(size=(rows, self.dimensions))).astype(np.float32), label

    def unknown(self, rng: np.random.Generator, rows: int, spread: float = 2.0) -> np.ndarray:
        """Embeddings [n, D] that belong to no class."""
        return rng.normal(0, spread, (rows, self.dimensions)).astype(np.float32)

    def logits(self, embedding: np.ndarray) -> np.ndarray:
        return embedding @ self.weight.T + self.bias


def write_store(
    folder: Path | str,
    embedding: np.ndarray,
    label: np.ndarray | None,
    toy: Toy,
    *,
    stored_logits: bool = False,
    group_rows: int | None = None,
    network: dict[str, Any] | None = None,
    layout: str = "clustered",
    pred: np.ndarray | None = None,
    class_names: list[str] | None = None,
    order: str | None = None,
) -> Store:
    """Write a complete store; ``label`` None = all unknown. ``group_rows`` makes row groups (and tasks) small."""
    logits = toy.logits(embedding)
    label = np.full(len(embedding), UNKNOWN) if label is None else label
    pred = logits.argmax(1) if pred is None else pred
    schema = row_schema(toy.dimensions, toy.classes if stored_logits else None)
    row_bytes = 4 * (toy.dimensions + (toy.classes if stored_logits else 0))
    size = (
        {} if group_rows is None else {"group_bytes": group_rows * row_bytes, "file_bytes": 4 * group_rows * row_bytes}
    )
    writer = ClusteredWriter(str(folder), "part", schema, **size)
    keys = pa.array([f"row-{i:06d}" for i in range(len(label))], pa.string())
    within_class = hash_keys(keys) if order == "hash" else np.arange(len(label))
    at = np.lexsort((within_class, label)) if layout == "clustered" else np.arange(len(label))
    if len(at):
        writer.write(
            to_table(keys.take(pa.array(at)), label[at], pred[at], embedding[at], logits[at] if stored_logits else None)
        )
    files = writer.close()
    if not stored_logits:
        write_head_file(str(folder), Head(toy.weight, toy.bias))
    described = {"name": NETWORK, "classes": toy.classes, "dimensions": toy.dimensions} | (network or {})
    manifest = StoreManifest(
        **provenance(JobConfig()),
        network=Network(**described),
        data=[Data(uri="memory", kind="synthetic", fingerprint="0")],
        rows=len(embedding),
        layout=layout,
        order=order,
        class_names=class_names,
        has_head=not stored_logits,
    )
    finish_store(str(folder), manifest, files if layout == "clustered" else None)
    return Store.open(str(folder))


def write_toy_model(
    folder: Path | str, embedding: np.ndarray, label: np.ndarray, toy: Toy, network: dict[str, Any] | None = None
) -> Model:
    """A model of plain numpy means and standard deviations of the correctly classified rows."""
    mean = np.zeros((toy.classes, toy.dimensions), np.float32)
    std, count = np.zeros_like(mean), np.zeros(toy.classes, np.int64)
    correct = toy.logits(embedding).argmax(1) == label
    for k in range(toy.classes):
        rows = embedding[correct & (label == k)].astype(np.float64)
        count[k] = len(rows)
        if len(rows) >= 2:
            mean[k], std[k] = rows.mean(0), rows.std(0, ddof=1)
    described = {"name": NETWORK, "classes": toy.classes, "dimensions": toy.dimensions} | (network or {})
    manifest = ModelManifest(**provenance(JobConfig()), network=Network(**described), rows=int(count.sum()))
    write_model(str(folder), Gaussians(mean, std, count), None, manifest)
    return Model.open(str(folder))


def read_row_file(path: Path | str) -> pa.Table:
    """All rows of an Arrow IPC file; a record batch is a chunk."""
    return pa.ipc.open_file(pa.BufferReader(Path(path).read_bytes())).read_all()


def read_row_files(folder: Path | str) -> pa.Table:
    """All rows of the files in a folder, in the order of their names."""
    return pa.concat_tables([read_row_file(path) for path in sorted(Path(folder).iterdir())])


def write_row_file(path: Path | str, rows: pa.Table, batch_rows: int | None = None) -> None:
    """Rows as an Arrow IPC file, in record batches of ``batch_rows``."""
    with pa.OSFile(str(path), "wb") as file:
        write_rows(file, rows.combine_chunks().to_batches(batch_rows), rows.schema)


def all_labels(store: Store) -> tuple[np.ndarray, np.ndarray]:
    """Labels and predictions of all rows in file order, each [N]."""
    tables = [store.read_small(groups, "label", "pred") for groups in store.row_groups()]
    return tuple(np.concatenate([table[name].to_numpy() for table in tables]) for name in ("label", "pred"))


def forget_digests(folder: Path | str) -> None:
    """Leave a result as another program would have written it: without digests, so that it can be changed."""
    where = Path(folder) / "manifest.json"
    manifest = json.loads(where.read_text())
    where.write_text(json.dumps({name: value for name, value in manifest.items() if name not in ("digests", "seal")}))
