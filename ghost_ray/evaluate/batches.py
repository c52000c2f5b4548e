"""Rows of a store as the batches scorers see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ghost_ray.arrange import hash_keys
from ghost_ray.errors import InputError
from ghost_ray.files import redact
from ghost_ray.scorers import Batch, Head
from ghost_ray.store import Piece, Store


@dataclass(frozen=True)
class BatchReader:
    """Reads pieces of a store; sent to every task, so it holds nothing but the store's manifest and the head."""

    store: Store
    head: Head | None
    field: str  # the option the store was given with

    @classmethod
    def of(cls, store: Store, field: str) -> BatchReader:
        """A reader with the store's own head."""
        head = store.head()
        return cls(store, None if head is None else Head(*head), field)

    def read(self, piece: Piece, *, with_logits: bool = True) -> tuple[Batch, pa.Array]:
        """The rows of a piece and their keys; a NaN or an infinity in them is refused, naming the row.

        ``with_logits`` False spares the product with the head: the logits are then an array [B, 0].
        """
        rows = self.store.read(piece, keys=True)
        logits = rows.logits
        if self.head is not None:
            logits = self.head.logits(rows.embedding) if with_logits else np.empty((len(rows), 0), np.float32)
        assert logits is not None, "a store without a head holds logits"
        assert rows.key is not None
        batch = Batch(
            embedding=rows.embedding,
            logits=logits,
            pred=rows.pred.astype(np.int64),
            label=rows.label.astype(np.int64),
            row_id=hash_keys(rows.key),
        )
        if not batch.finite.all():
            self.store.refuse_non_finite(rows, piece)
            row = self.store.row_number(piece, int(np.flatnonzero(~batch.finite)[0]))
            raise InputError(
                self.field,
                redact(self.store.uri),
                f"rows/{piece.file}: the logits of row {row} hold a NaN or an infinity",
                "extract the store again",
            )
        return batch, rows.key
