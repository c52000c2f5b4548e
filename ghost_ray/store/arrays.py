"""A store whose rows are arrays in this process; the jobs use it like a store on disk."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ghost_ray.files.manifest import Data, Network, now
from ghost_ray.rows import Head, Singles
from ghost_ray.store.layout import StoreManifest
from ghost_ray.store.reader import Store
from ghost_ray.store.row_groups import RowGroups
from ghost_ray.store.writer import lay_out, row_keys, row_order, vector_column

_PLACE = "arrays"  # the place of the rows, in messages and manifests


class ArrayStore(Store):
    """Rows in the order, the row groups and under the keys in which ``import`` would write them to a disk.

    So the jobs give the same numbers for both, to the last bit.

    Parameters
    ----------
    label, pred : arrays of shape [N], integer
    embedding : array of shape [N, D], float32
    logits : array of shape [N, K], float32, optional
        Kept where no head is given, as on a disk.
    head : Head, optional
    network : Network
    class_names : sequence of str, optional
    field : str
        The argument that the arrays were given as.
    """

    def __init__(
        self,
        label: np.ndarray,
        pred: np.ndarray,
        embedding: Singles,
        logits: Singles | None,
        head: Head | None,
        network: Network,
        class_names: Sequence[str] | None = None,
        field: str = "store",
    ) -> None:
        order = row_order(label)
        stored = {"embedding": embedding}
        if logits is not None and head is None:
            stored["logits"] = logits
        self._order, self._head = order, head
        self._small = {"label": label[order].astype(np.int32), "pred": pred[order].astype(np.int32)}
        in_order = bool((order[1:] > order[:-1]).all())
        self._wide = {name: values if in_order else values[order] for name, values in stored.items()}
        files = lay_out(self._small["label"], 4 * sum(values.shape[1] for values in stored.values()))
        ends = np.cumsum([file.rows for file in files]).tolist()
        self._starts = {file.name: end - file.rows for file, end in zip(files, ends, strict=True)}
        manifest = StoreManifest(
            created=now(),
            network=network,
            data=[Data(uri=_PLACE, kind=_PLACE)],
            rows=len(label),
            layout="clustered",
            class_names=None if class_names is None else list(class_names),
            has_head="logits" not in stored,
        )
        super().__init__(_PLACE, manifest, files, field)

    def head(self) -> Head | None:
        return self._head

    @functools.cached_property
    def _keys(self) -> pa.Array:
        """The rows' numbers, in the store's order."""
        return row_keys(self._order, len(self._order))

    def fingerprint(self) -> str:
        """SHA-256 of labels, predictions, and of at most a thousand rows from first to last."""
        digest = hashlib.sha256(repr([self._wide["embedding"].shape, self.classes]).encode())
        step = max(1, self.rows // 1000)
        for values in (*self._small.values(), *(values[::step] for values in self._wide.values())):
            digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()

    def _record_batches(self, groups: RowGroups, columns: list[str]) -> Iterator[pa.RecordBatch]:
        for group in groups.split():
            start = self._starts[group.file] + group.start
            yield pa.record_batch({name: self._column(name, start, group.rows) for name in columns})

    def _column(self, name: str, start: int, rows: int) -> pa.Array:
        if name == "key":
            return self._keys[start : start + rows]
        if name == "group":
            return pa.nulls(rows, pa.string())
        if name in self._wide:
            return vector_column(self._wide[name][start : start + rows])
        return pa.array(self._small[name][start : start + rows])
