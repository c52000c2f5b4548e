"""From a source's own labels to the classes of a head, by a rule or by a table of classes."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ghost_ray.checks.agreement import in_numeric_order
from ghost_ray.config import parse_yaml
from ghost_ray.errors import InputError, nearest, one_line
from ghost_ray.files import explained, parse_json, resolve
from ghost_ray.files.storage_errors import cause_of
from ghost_ray.sources.reading import retried
from ghost_ray.sources.source import Source

UNKNOWN = -1
_WNID = re.compile(r"n\d{8}")
_INTEGER = re.compile(r"-?\d{1,18}")
_FOLDERS = "folder"  # the format in which numbers are names


@dataclass(frozen=True)
class RawLabels:
    """The labels of a set, as the set has them, and the wording of errors about them."""

    values: list[str]  # distinct, sorted
    uri: str
    numbers_are_indices: bool = True  # and not names, as those of folders are
    class_names: list[str] | None = None  # all names, also of classes without a row
    field: str = "data"
    hint: str = "`classes=FILE` with lines `name index`, or `unknown`"


@dataclass(frozen=True)
class LabelMap:
    """Raw label → index in the head, and what the head's classes are called."""

    index: Mapping[str, int]  # every raw label that is known to be there; −1 = unknown
    rule: str  # how it was found: wnid, sorted, classes or integer
    class_names: list[str] | None = None  # K names, where known
    notes: list[str] = field(default_factory=list)  # what a user should know about the rule
    raw: RawLabels | None = None  # what it was found for
    known: Mapping[str, int] | int = field(default_factory=dict)  # all labels of the rule; integers: how many classes
    otherwise: str = ""  # what is wrong with a label that the rule does not know
    kept: Mapping[int, int] | None = None  # class of the whole head → class of the head it was narrowed to

    def apply(self, labels: pa.ChunkedArray | pa.Array) -> np.ndarray:
        """int32 indices of a column of raw labels; null is −1.

        Raises
        ------
        InputError
            For a label that was not there when the rule was found, and that the rule does not know.
        """
        codes = labels.combine_chunks() if isinstance(labels, pa.ChunkedArray) else labels
        codes = codes if pa.types.is_dictionary(codes.type) else codes.dictionary_encode()
        places: np.ndarray = codes.indices.fill_null(len(codes.dictionary)).to_numpy(zero_copy_only=False)
        table = np.full(len(codes.dictionary) + 1, UNKNOWN, np.int32)
        for place in np.unique(places[places < len(codes.dictionary)]):  # a dictionary may hold more than is used
            table[place] = self._of(codes.dictionary[place].as_py())
        return np.take(table, places)

    def _of(self, value: str) -> int:
        if value in self.index:
            return self.index[value]
        found = _class_of(value, self.known)
        if found is None:
            assert self.raw is not None  # of every map that `match_labels` makes
            raise _no_class(self.raw, value, self.otherwise)
        return found if self.kept is None else _narrowed(value, found, self.kept)

    def present(self) -> list[int]:
        """The head's classes that the source has images of, ascending: what `restrict` keeps."""
        return sorted(set(self.index.values()) - {UNKNOWN})

    def restricted(self, kept: Sequence[int]) -> LabelMap:
        """The same map into a head narrowed to the classes ``kept``.

        Raises
        ------
        InputError
            Naming the first label whose class was not kept.
        """
        place = {old: new for new, old in enumerate(kept)} | {UNKNOWN: UNKNOWN}
        index = {raw: _narrowed(raw, old, place) for raw, old in self.index.items()}
        names = [self.class_names[old] for old in kept] if self.class_names is not None else None
        return replace(self, index=index, class_names=names, kept=place)


def _narrowed(raw: str, old: int, place: Mapping[int, int]) -> int:
    if old not in place:
        problem = f"is class {old} of the whole head, which was not kept"
        raise InputError("data", raw, problem, "leave its images out, or extract them with `unknown`")
    return place[old]


def _class_of(value: str, known: Mapping[str, int] | int) -> int | None:
    """The class that a label means; None for a label that is not known, and for a number that is no class."""
    if not isinstance(known, int):
        return known.get(value)
    return int(value) if _INTEGER.fullmatch(value) and UNKNOWN <= int(value) < known else None


@dataclass(frozen=True)
class LabelFacts:
    """What the labels of a source, or of some of it, are like."""

    values: list[str]  # distinct, sorted
    missing: int = 0  # images without one
    first_missing: str | None = None  # the key of the first of them

    @classmethod
    def of(cls, items: pa.Table) -> LabelFacts:
        """From rows with `key` and `label`."""
        labels = items["label"]
        values = sorted(pc.unique(labels.cast(pa.string())).drop_null().to_pylist())
        missing = labels.null_count
        first = items["key"].filter(pc.is_null(labels))[0].as_py() if missing else None
        return cls(values, missing, first)

    def merged(self, other: LabelFacts) -> LabelFacts:
        """Those of both; ``self`` comes first."""
        first = self.first_missing if self.missing else other.first_missing
        new = set(other.values).difference(self.values)
        values = sorted([*self.values, *new]) if new else self.values
        return LabelFacts(values, self.missing + other.missing, first)


def rule_is_clear(source: Source, explicit: Mapping[str, int] | None, classes: int) -> bool:
    """Whether the preview of a source shows how to interpret its labels; else all labels must be known."""
    facts = LabelFacts.of(source.preview.items)
    if source.preview.complete or source.kind == _FOLDERS or explicit is not None:
        return True
    if facts.missing or not facts.values:
        return False
    numbers = all(_INTEGER.fullmatch(value) for value in facts.values)
    return numbers or (all(_WNID.fullmatch(value) for value in facts.values) and _imagenet_of(classes) is not None)


def map_labels(
    source: Source, classes: int, explicit: Mapping[str, int] | None = None, facts: LabelFacts | None = None
) -> LabelMap:
    """Find the head's class for the labels of a source; see :func:`match_labels`.

    Parameters
    ----------
    facts : LabelFacts, optional
        Of the whole source. Default: those of the preview.
    """
    found = facts or LabelFacts.of(source.preview.items)
    if found.missing:
        first = f"has {found.missing:,} images without a label, first {found.first_missing!r}"
        what = first if found.values else "has no labels"
        raise InputError("data", source.uri, what, "`unknown`, if these are unknowns")
    folders = source.kind == _FOLDERS
    values = found.values
    if facts is None and not source.preview.complete and folders:
        values = source.class_names or values  # known without looking into them
    raw = RawLabels(values, source.uri, not folders, source.class_names)
    return match_labels(raw, classes, explicit)


def match_labels(raw: RawLabels, classes: int, explicit: Mapping[str, int] | None = None) -> LabelMap:
    """Find the head's class for every label.

    In this order: the `explicit` table (``--classes``); WordNet ids by timm's table for a head of that size;
    integers as they are (−1 = unknown), except where they are folder names; names in sorted order where there are
    as many as classes. The labels may cover only some of the classes.

    Parameters
    ----------
    classes : int
        K of the head.

    Raises
    ------
    InputError
        Naming the first label that fits no class.
    """
    if explicit is not None:
        return _by_table(raw, classes, explicit)
    if all(_WNID.fullmatch(value) for value in raw.values):
        subset = _imagenet_of(classes)
        if subset is not None:
            return _by_wnid(raw, subset)
    if raw.numbers_are_indices and all(_INTEGER.fullmatch(value) for value in raw.values):
        return _by_integer(raw, classes)
    return _by_order(raw, classes)


def _by_table(raw: RawLabels, classes: int, table: Mapping[str, int]) -> LabelMap:
    outside = next((name for name, index in table.items() if not UNKNOWN <= index < classes), None)
    if outside is not None:
        problem = f"{outside!r} has index {table[outside]}, the head's classes are 0 to {classes - 1}"
        raise InputError("classes", raw.uri, problem)
    names: list[str | None] = [None] * classes
    for name, place in table.items():
        if place != UNKNOWN and names[place] is None:
            names[place] = name
    filled = [str(index) if name is None else name for index, name in enumerate(names)]
    return _matched(raw, "classes", table, filled, "is not in the table of classes")


def _imagenet_of(classes: int) -> str | None:
    """The set of WordNet ids that timm takes a head of this size to be trained on."""
    from timm.data.imagenet_info import infer_imagenet_subset

    return infer_imagenet_subset({"num_classes": classes})


def _by_wnid(raw: RawLabels, subset: str) -> LabelMap:
    from timm.data.imagenet_info import ImageNetInfo

    info: Any = ImageNetInfo(subset)
    place = {wnid: index for index, wnid in enumerate(info.label_names())}
    otherwise = f"is not one of the {len(place)} WordNet ids of {subset}"
    return _matched(raw, "wnid", place, info.label_descriptions(), otherwise)


def _by_integer(raw: RawLabels, classes: int) -> LabelMap:
    names = raw.class_names if raw.class_names and len(raw.class_names) == classes else None
    return _matched(raw, "integer", classes, names, f"the head's classes are 0 to {classes - 1} (−1: unknown)")


def _by_order(raw: RawLabels, classes: int) -> LabelMap:
    every = raw.class_names if not raw.numbers_are_indices and raw.class_names else raw.values
    names = sorted(every)
    if len(names) != classes:
        first = raw.values[0]
        problem = (
            f"is one of {len(names)} names and the head has {classes} classes, so their order does not give the classes"
        )
        raise _no_class(raw, first, problem)
    notes = []
    if sorted(names, key=in_numeric_order) != names:
        notes.append(
            "classes are numbered in the order of their names as text (10 before 2), as torchvision does;"
            " if the head was trained in another order, give a table of classes"
        )
    index = {name: place for place, name in enumerate(names)}
    otherwise = f"is not one of the {len(names)} class names"
    return LabelMap(index, "sorted", names, notes, raw, index, otherwise)


def _matched(
    raw: RawLabels, rule: str, known: Mapping[str, int] | int, names: list[str] | None, otherwise: str
) -> LabelMap:
    index = {}
    for value in raw.values:
        found = _class_of(value, known)
        if found is None:
            hint = nearest(value, known) if rule == "classes" and not isinstance(known, int) else ""
            raise _no_class(raw, value, otherwise, hint)
        index[value] = found
    return LabelMap(index, rule, names, raw=raw, known=known, otherwise=otherwise)


def _no_class(raw: RawLabels, value: str, problem: str, hint: str = "") -> InputError:
    return InputError(raw.field, raw.uri, f"label {value!r} fits no class of the head: {problem}", hint or raw.hint)


def load_classes(uri: str) -> dict[str, int]:
    """Read a table of classes.

    A JSON or YAML object name → index, or index → name or [id, name] as Hugging Face and Keras write it; a JSON or YAML
    list of names in the head's order; or text with a line ``name index`` for each class, or a name alone in the head's
    order.
    """
    filesystem, path = resolve(uri, "classes")
    try:
        content = retried(filesystem, lambda: _read(filesystem, path))
    except OSError as error:
        if cause_of(error):
            raise explained(error, "classes", uri) from None
        raise InputError("classes", uri, f"cannot be read: {one_line(error)}") from error
    try:
        text = content.decode("utf-8-sig")
        suffix = posixpath.splitext(path)[1].lower()
        if suffix == ".json":
            table = parse_json(content)
        elif suffix in (".yaml", ".yml"):
            table = parse_yaml(text)
        else:
            table = _from_lines(text)
    except ValueError as error:
        raise InputError("classes", uri, f"cannot be read: {one_line(error)}") from error
    if isinstance(table, list):
        if len({str(name) for name in table}) != len(table):
            raise InputError("classes", uri, "names a class twice")
        table = {str(name): index for index, name in enumerate(table)}
    if isinstance(table, dict) and all(_INTEGER.fullmatch(str(key)) for key in table):
        table = _by_name(table)
    wrong = "expected a table name → index" if not isinstance(table, dict) or not table else ""
    for name, index in table.items() if isinstance(table, dict) else ():
        if not isinstance(index, int) or isinstance(index, bool):
            wrong = f"{name!r} has {index!r}, expected an integer"
            break
    if wrong:
        raise InputError("classes", uri, wrong, "lines `name index`, or JSON or YAML {name: index}")
    return {str(name): index for name, index in table.items()}


def _by_name(table: dict[Any, Any]) -> dict[Any, Any]:
    """A table index → name or names as one name → index, without names that several classes have."""
    names = {index: value if isinstance(value, list) else [value] for index, value in table.items()}
    if not all(isinstance(name, str) for each in names.values() for name in each):
        return table
    counts = Counter(name for each in names.values() for name in each)
    # The first name of a class is the one that is shown, and of [id, name] people read the last.
    return {name: int(index) for index, each in names.items() for name in reversed(each) if counts[name] == 1}


def _read(filesystem: fs.FileSystem, path: str) -> bytes:
    with filesystem.open_input_file(path) as handle:
        return bytes(handle.read())


def _from_lines(text: str) -> dict[str, int] | list[str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    pairs = [re.split(r"[\t, ]+(?=-?\d+$)", line) for line in lines]
    if not all(len(pair) == 2 for pair in pairs):
        return lines
    table = {name: int(index) for name, index in pairs}
    if len(table) != len(pairs):
        raise ValueError("names a class twice")
    return table
