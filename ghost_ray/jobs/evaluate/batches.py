"""Rows of a store as the batches scorers see."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from ghost_ray.errors import InputError, redact
from ghost_ray.rows import Head, Rows
from ghost_ray.store import RowGroups, Store, hash_keys


@dataclass(frozen=True)
class BatchReader:
    """Reads row groups of a store; sent to every task, so it holds nothing but the store's manifest and the head."""

    store: Store
    head: Head | None
    field: str  # the option the store was given with

    @classmethod
    def of(cls, store: Store, field: str) -> BatchReader:
        """A reader with the store's own head."""
        return cls(store, store.head(), field)

    def read(self, groups: RowGroups, *, with_logits: bool = True) -> tuple[Rows, pa.Array]:
        """The rows of row groups and their keys; a NaN or an infinity in them is refused, naming the row.

        ``with_logits`` False spares the product with the head: the rows then come without logits.
        """
        stored, key = self.store.read_keyed(groups)
        logits = stored.logits if stored.has_logits else None
        if self.head is not None and with_logits:
            logits = self.head.logits(stored.embedding)
        rows = Rows(stored.label, stored.pred, stored.embedding, logits, partial(hash_keys, key))
        if not rows.finite.all():
            self.store.refuse_non_finite(rows, groups)
            row = self.store.row_number(groups, int(np.flatnonzero(~rows.finite)[0]))
            raise InputError(
                self.field,
                redact(self.store.uri),
                f"rows/{groups.file}: the logits of row {row} hold a NaN or an infinity",
                "extract the store again",
            )
        return rows, key
