"""Do the labels match the predictions? If not, would another numbering of the classes?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ghost_ray.rows import Ints

FEWEST_ROWS = 30  # with fewer rows, agreement says little
_CLEARLY = 0.3  # kappa that another numbering must reach, and be ahead by, to be spoken of
_MATCHED = 0.6  # the same for classes matched one by one, which fits by chance alone more easily
_ROWS_PER_CLASS = 5  # needed to match classes one by one
_SIGMAS = 4.0
_NEARLY_NONE = 0.15  # of few rows, a kappa beyond this may still be more than chance


class LabelCounts(NamedTuple):
    """How many rows have which label and prediction; each pair that occurs is there once, in ascending order."""

    label: Ints  # [P] int64, −1 = unknown
    pred: Ints  # [P] int64
    n: Ints  # [P] int64

    @classmethod
    def of(cls, label: Ints, pred: Ints, n: Ints | None = None) -> LabelCounts:
        """From labels and predictions [N], of one row each or of ``n`` [N]."""
        width = int(pred.max(initial=0)) + 1
        codes, at = np.unique((label.astype(np.int64) + 1) * width + pred, return_inverse=True)
        total = np.zeros(len(codes), np.int64)
        np.add.at(total, at, 1 if n is None else n)
        return cls(codes // width - 1, codes % width, total)

    @classmethod
    def joined(cls, parts: Sequence[LabelCounts]) -> LabelCounts:
        """Those of several sets of rows together."""
        return cls.of(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    @property
    def rows(self) -> int:
        return int(self.n.sum())

    def known(self) -> LabelCounts:
        """Without the rows whose label is unknown."""
        return LabelCounts(*(column[self.label >= 0] for column in self))

    @property
    def accuracy(self) -> float | None:
        """Of all rows with a label; None if there is none."""
        known = self.known()
        return int(known.n[known.label == known.pred].sum()) / known.rows if known.rows else None


@dataclass(frozen=True)
class Agreement:
    """How often labels and predictions are the same, beside how often they would be by chance."""

    share: float
    chance: float  # of labels and predictions that occur as often as these do, in any order
    rows: int

    @classmethod
    def of(cls, given: LabelCounts, classes: int) -> Agreement:
        label, pred, n = given
        labels, preds = (np.bincount(values, n, minlength=classes) / given.rows for values in (label, pred))
        return cls(int(n[label == pred].sum()) / given.rows, float(labels @ preds), given.rows)

    @property
    def kappa(self) -> float:
        """Cohen's: 1 where all rows agree, 0 where no more do than by chance."""
        return (self.share - self.chance) / (1 - self.chance) if self.chance < 1 else 0.0

    @property
    def is_chance(self) -> bool:
        """Whether the agreement is no better than chance, as far as so many rows can tell."""
        error = (self.chance * (1 - self.chance) / self.rows) ** 0.5
        return self.chance < 1 and self.kappa <= _NEARLY_NONE and self.share <= self.chance + _SIGMAS * error

    @property
    def beside_chance(self) -> str:
        """In words, where it is no better than chance."""
        more = "not" if self.share <= self.chance else "hardly"
        return f"{more} more often than by chance ({percent(self.chance)})"


def of_labels(counts: LabelCounts, classes: int, class_names: Sequence[str] | None = None) -> list[str]:
    """At most one note: the labels fit better under another numbering, or no better than chance.

    Parameters
    ----------
    counts : LabelCounts
        Of all rows; those with an unknown label are left out.
    class_names : sequence of str, optional
        Names of the K classes in the order of the labels.
    """
    known = counts.known()
    # One class alone agrees just as often by chance.
    if known.rows < FEWEST_ROWS or (known.label == known.label[0]).all():
        return []
    given = Agreement.of(known, classes)
    as_is = f"the labels agree with the predictions in {percent(given.share)} of the rows"
    best, said = max(given.kappa, 0.0), ""
    for renumbered, words, needed in _numberings(known, classes, class_names):
        found = Agreement.of(known._replace(label=renumbered), classes)
        if found.kappa >= needed and found.kappa >= best + (_CLEARLY / 2 if said else needed):
            best, said = found.kappa, f", and would in {percent(found.share)} {words}"
    if said:
        return [as_is + said]
    if given.is_chance:
        return [f"{as_is}, {given.beside_chance}: labels and logits do not seem to belong together row by row"]
    return []


def _numberings(known: LabelCounts, classes: int, names: Sequence[str] | None) -> Iterator[tuple[Ints, str, float]]:
    """Labels under other numberings that people confuse, a name for each, and the kappa it must reach."""
    label, pred, count = known
    shifts = np.bincount((pred - label) % classes, count, minlength=classes)
    shift = int(shifts[1:].argmax()) + 1 if classes > 1 else 0
    if classes == 2:
        yield 1 - label, "with the two classes swapped", _CLEARLY
    elif shift:
        signed = shift if shift <= classes // 2 else shift - classes
        moved = label + signed
        around = f" modulo {classes}" if moved.min() < 0 or moved.max() >= classes else ""
        change = f"{abs(signed)} {'added to' if signed > 0 else 'subtracted from'} each{around}"
        yield moved % classes, f"with {change}: they seem to count from another number than the network", _CLEARLY
    for place, words in _orders(classes, names):
        yield place[label], words, _CLEARLY
    matched = _matched(known, classes)
    if matched is not None:
        words = "if each class were the one it is mostly taken for: the classes seem to be in another order"
        yield matched, words, _MATCHED


def _orders(classes: int, names: Sequence[str] | None) -> Iterator[tuple[Ints, str]]:
    """The index of each class if names with numbers were in the other order."""
    called = [str(k) for k in range(classes)] if names is None else list(names)
    as_text, by_number = (np.empty(classes, np.int64) for _ in range(2))
    as_text[sorted(range(classes), key=called.__getitem__)] = np.arange(classes)
    by_number[sorted(range(classes), key=lambda k: in_numeric_order(called[k]))] = np.arange(classes)
    if (as_text == by_number).all():
        return
    text = "if the classes were in the order of their names as text, 10 before 2: the network seems to use that order"
    number = "if the classes were in the order of their numbers, 2 before 10: they seem to be sorted as text"
    # Without names, the labels themselves may be places in the one order or in the other.
    numbered = np.argsort(as_text) if names is None else by_number
    for place, words in ((as_text, text), (numbered, number)):
        if (place != np.arange(classes)).any():
            yield place, words


_DIGITS = re.compile(r"(\d{1,18})")  # Python makes no number of thousands of digits


def in_numeric_order(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts "class 2" before "class 10"."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(_DIGITS, name)]


def _matched(known: LabelCounts, classes: int) -> Ints | None:
    """Each label as the class that its rows are mostly predicted as; None if most stay or two become one."""
    label, pred, count = known
    order = np.lexsort((pred, -count, label))
    of_label, first = np.unique(label[order], return_index=True)
    mostly = pred[order][first]
    one_to_one = len(np.unique(mostly)) == len(mostly)
    if known.rows < _ROWS_PER_CLASS * len(of_label) or not one_to_one or np.mean(mostly != of_label) < 0.5:
        return None
    place = np.arange(classes)
    place[of_label] = mostly
    return place[label]


def percent(share: float) -> str:
    """0.973 → 97.3 %; only exactly 0 and 1 are shown as 0 % and 100 %."""
    shown = 100 * share
    return f"{shown:.1f} %" if shown in (0, 100) or 0.05 <= shown < 99.95 else f"{shown:.3g} %"
