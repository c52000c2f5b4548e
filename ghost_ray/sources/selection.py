"""A seeded part of a source that does not depend on how or where it was listed."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa


def select(items: pa.Table, limit: int | None = None, per_class: int | None = None, seed: int = 0) -> pa.Table:
    """Keep `per_class` images of each label, then `limit` of all, in their order.

    Each image has a rank, a hash of seed and key; the lowest ranks are kept. The choice is uniform, the same on
    every machine and for every order of listing, and a larger limit adds to what a smaller one chose.

    Parameters
    ----------
    items : Table
        With columns `key` and `label`; images without a label count as one class.
    """
    if limit is None and per_class is None:
        return items
    ranks = np.fromiter((_rank(key, seed) for key in items["key"].to_pylist()), np.uint64, items.num_rows)
    kept = np.arange(items.num_rows)
    if per_class is not None:
        codes = items["label"].combine_chunks()
        if not pa.types.is_dictionary(codes.type):
            codes = codes.dictionary_encode()
        classes = codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        order = np.lexsort((ranks, classes))
        sorted_classes = classes[order]
        first = np.searchsorted(sorted_classes, sorted_classes, side="left")
        kept = order[np.arange(len(order)) - first < per_class]
    if limit is not None and len(kept) > limit:
        kept = kept[np.argsort(ranks[kept], kind="stable")[:limit]]
    return items.take(pa.array(np.sort(kept)))


def _rank(key: str, seed: int) -> int:
    digest = hashlib.blake2b(key.encode(), digest_size=8, salt=seed.to_bytes(16, "little", signed=True))
    return int.from_bytes(digest.digest(), "little")
