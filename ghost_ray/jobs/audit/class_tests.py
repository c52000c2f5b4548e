"""The work of a task: collect the samples of each class of a range and test their columns.

If a class has more rows than are tested, only the row groups that hold the sample are read. If the rows of a class are
in the order of the hash that samples them, these are the first ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from ghost_ray.normality import test_columns
from ghost_ray.store import RowGroups, Store, hash_keys, joined, numbers_of


@dataclass(frozen=True)
class Sampling:
    """At most ``max_n`` rows of a class are tested; which ones depends on ``seed`` and their keys alone.

    With the seed 0 they are those that come first in a store whose ``order`` is by hash.
    """

    max_n: int
    seed: int

    def choose(self, keys: pa.Array) -> np.ndarray:
        """Positions of the rows to test, ascending, [min(n, max_n)]; the same rows in any order of the input."""
        mark = hash_keys(keys, seed=self.seed)
        return np.sort(np.argsort(mark, kind="stable")[: self.max_n])

    def comes_first(self, store: Store) -> bool:
        """Whether the rows to test are the first ones of their class."""
        return store.manifest.order == "hash" and self.seed == 0


@dataclass(frozen=True)
class RangeTests:
    """The tests of C classes; where ``degenerate``, W and p are 1 by convention."""

    classes: np.ndarray  # [C] int32, ascending
    n: np.ndarray  # [C] int64, samples tested
    available: np.ndarray  # [C] int64, correctly classified rows in the store
    W: np.ndarray  # [C, D] float64
    p: np.ndarray  # [C, D] float64
    degenerate: np.ndarray  # [C, D] bool

    @classmethod
    def untested(cls, first: int, stop: int, dimensions: int) -> RangeTests:
        """The classes first, …, stop − 1 without any sample."""
        count = stop - first
        return cls(
            np.arange(first, stop, dtype=np.int32),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.ones((count, dimensions)),
            np.ones((count, dimensions)),
            np.ones((count, dimensions), np.bool_),
        )

    def take_from(self, other: RangeTests) -> None:
        """Overwrite the classes that ``other`` has too; the classes here are consecutive."""
        place = other.classes - self.classes[0]
        inside = (place >= 0) & (place < len(self.classes))
        for name in ("n", "available", "W", "p", "degenerate"):
            getattr(self, name)[place[inside]] = getattr(other, name)[inside]


def test_range(class_range: list[RowGroups], store: Store, sampling: Sampling) -> RangeTests:
    """Test every class of a range of a clustered store."""
    classes, n, available, results = [], [], [], []
    try:
        for label, total, sample in class_samples(store, class_range, sampling):
            classes.append(label)
            n.append(len(sample))
            available.append(total)
            results.append(test_columns(sample))
    except ValueError:
        for groups in class_range:
            for rows in store.batches(groups, logits=False):
                store.refuse_non_finite(rows, groups)
        raise
    return RangeTests(
        np.array(classes, np.int32),
        np.array(n, np.int64),
        np.array(available, np.int64),
        np.stack([result.W for result in results]),
        np.stack([result.p for result in results]),
        np.stack([result.degenerate for result in results]),
    )


test_range.__test__ = False  # type: ignore[attr-defined]  # a name pytest would otherwise collect


def class_samples(
    store: Store, class_range: list[RowGroups], sampling: Sampling
) -> Iterator[tuple[int, int, np.ndarray]]:
    """The labelled classes of a range: (label, correctly classified rows, those to test [n, D]), in label order."""
    used, totals = _rows_to_test(store, class_range, sampling)
    label = -1
    parts: list[np.ndarray] = []
    for groups, mask in _to_read(store, class_range, used, totals, sampling.max_n):
        for rows in store.batches(groups, logits=False):
            taken = mask[rows.start : rows.start + len(rows)]
            store.refuse_unused_non_finite(rows, taken, groups)
            borders = np.flatnonzero(np.diff(rows.label)) + 1
            for start, stop in zip([0, *borders.tolist()], [*borders.tolist(), len(rows)], strict=True):
                if rows.label[start] != label:
                    if label >= 0:
                        yield label, totals[label], _joined(parts)
                    label, parts = int(rows.label[start]), []
                block = rows.embedding[start:stop]
                parts.append(block if taken[start:stop].all() else block[taken[start:stop]])
    if label >= 0:
        yield label, totals[label], _joined(parts)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _rows_to_test(
    store: Store, class_range: list[RowGroups], sampling: Sampling
) -> tuple[list[np.ndarray], dict[int, int]]:
    """For each part of the range which rows to test, [rows] bool, and by label how many are correctly classified."""
    tables = [store.read_small(groups, "label", "pred") for groups in class_range]
    small = pa.concat_tables(tables)
    label = numbers_of(small["label"])
    unsorted = np.flatnonzero(np.diff(label) < 0)
    if len(unsorted):
        raise store.broken(class_range[0].file, f"label {label[unsorted[0] + 1]} comes after {label[unsorted[0]]}")
    used = label == numbers_of(small["pred"])
    present, counts = np.unique(label[used], return_counts=True)
    totals = dict.fromkeys(np.unique(label).tolist(), 0) | dict(zip(present.tolist(), counts.tolist(), strict=True))
    ends = np.cumsum([table.num_rows for table in tables])[:-1]
    large = present[counts > sampling.max_n]
    first_ones = sampling.comes_first(store)
    if len(large) and not first_ones:
        keys = (
            pa.concat_tables([store.read_small(groups, "key") for groups in class_range]).column("key").combine_chunks()
        )
    for k in large:
        rows = np.flatnonzero(used & (label == k))
        used[rows] = False
        chosen = np.arange(sampling.max_n) if first_ones else sampling.choose(keys.take(pa.array(rows)))
        used[rows[chosen]] = True
    masks = np.split(used, ends)
    if len(large) and first_ones:
        for groups, _ in _to_read(store, class_range, masks, totals, sampling.max_n):
            _check_order(store, groups)
    return masks, totals


def _to_read(
    store: Store, class_range: list[RowGroups], used: list[np.ndarray], totals: dict[int, int], max_n: int
) -> Iterator[tuple[RowGroups, np.ndarray]]:
    """The range and its masks without the row groups of a large class in which no row is to be tested."""
    for part, mask in zip(class_range, used, strict=True):
        groups = part.split()
        masks = np.split(mask, np.cumsum([group.rows for group in groups])[:-1])
        needed = [
            bool(tested.any()) or group.first_label != group.last_label or totals.get(group.first_label, 0) <= max_n
            for group, tested in zip(groups, masks, strict=True)
        ]
        for wanted, run in groupby(range(len(groups)), key=needed.__getitem__):
            if wanted:
                at = list(run)
                yield joined([groups[i] for i in at]), np.concatenate([masks[i] for i in at])


def _check_order(store: Store, groups: RowGroups) -> None:
    """Refuse a store whose rows are not in the order that its manifest says they have."""
    small = store.read_small(groups, "label", "key")
    mark = hash_keys(small.column("key").combine_chunks())
    wrong = (np.diff(numbers_of(small["label"])) == 0) & (mark[1:] < mark[:-1])
    if wrong.any():
        row = store.row_number(groups, int(wrong.argmax()) + 1)
        raise store.broken(groups.file, f"row {row} is not in the order of hashes that the manifest promises")
