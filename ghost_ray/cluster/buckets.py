"""Which rows are sorted and written together: buckets of consecutive labels, each as much as a task can hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Buckets:
    """Which bucket a row belongs to: ``first[label + 1]`` plus a share of the key's hash among ``split[label + 1]``."""

    first: np.ndarray
    split: np.ndarray
    count: int

    def of(self, label: np.ndarray, key_hash: np.ndarray) -> np.ndarray:
        """Bucket of each row; label [n] int32, key_hash [n] uint64 -> [n] int64."""
        place = label.astype(np.int64) + 1
        share = (key_hash >> np.uint64(32)) * self.split[place].astype(np.uint64) >> np.uint64(32)
        return np.asarray(self.first[place] + share.astype(np.int64))

    def between(self, first_label: int, last_label: int) -> range:
        """The buckets of the labels ``first_label`` to ``last_label``."""
        last = last_label + 1
        return range(int(self.first[first_label + 1]), int(self.first[last] + self.split[last]))


def plan_buckets(counts: np.ndarray, rows_per_bucket: int) -> Buckets:
    """Pack consecutive labels into buckets of about ``rows_per_bucket`` rows; a larger label gets several.

    Parameters
    ----------
    counts : [K + 1] int64
        Rows with label −1, 0, …, K−1.
    """
    first = np.zeros(len(counts), np.int64)
    split = np.ones(len(counts), np.int64)
    bucket, filled = 0, 0
    for place, rows in enumerate(counts.tolist()):
        if filled and filled + rows > rows_per_bucket:
            bucket, filled = bucket + 1, 0
        first[place] = bucket
        filled += rows
        if rows > rows_per_bucket:
            split[place] = -(-rows // rows_per_bucket)
            bucket, filled = bucket + int(split[place]), 0
    return Buckets(first, split, bucket + (1 if filled else 0))
