"""From a source's own labels to the classes of a head."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ghost_ray import safe_yaml
from ghost_ray.errors import InputError, nearest, one_line
from ghost_ray.files import resolve
from ghost_ray.sources.base import Source, read_bytes

UNKNOWN = -1
_WNID = re.compile(r"n\d{8}")
_INTEGER = re.compile(r"-?\d{1,18}")


@dataclass(frozen=True)
class LabelMap:
    """Raw label → index in the head, and what the head's classes are called."""

    index: Mapping[str, int]  # every raw label of the source; −1 = unknown
    rule: str  # how it was found: wnid, sorted, classes or integer
    class_names: list[str] | None = None  # K names, where known
    notes: list[str] = field(default_factory=list)  # what a user should know about the rule

    def apply(self, labels: pa.ChunkedArray | pa.Array) -> np.ndarray:
        """int32 indices of a column of raw labels; null is −1."""
        codes = labels.combine_chunks() if isinstance(labels, pa.ChunkedArray) else labels
        codes = codes if pa.types.is_dictionary(codes.type) else codes.dictionary_encode()
        table = np.array([self.index[value] for value in codes.dictionary.to_pylist()] + [UNKNOWN], np.int32)
        places: np.ndarray = codes.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)
        return np.take(table, places)

    def present(self) -> list[int]:
        """The head's classes that the source has images of, ascending: what `--restrict` keeps."""
        return sorted(set(self.index.values()) - {UNKNOWN})

    def restricted(self, kept: Sequence[int]) -> LabelMap:
        """The same map into a head narrowed to the classes ``kept``.

        Raises
        ------
        InputError
            Naming the first label whose class was not kept.
        """
        place = {old: new for new, old in enumerate(kept)} | {UNKNOWN: UNKNOWN}
        for raw, old in self.index.items():
            if old not in place:
                problem = f"is class {old} of the whole head, which was not kept"
                raise InputError("--data", raw, problem, "leave its images out, or extract them with --unknown")
        names = [self.class_names[old] for old in kept] if self.class_names is not None else None
        return LabelMap({raw: place[old] for raw, old in self.index.items()}, self.rule, names, self.notes)


def map_labels(source: Source, classes: int, explicit: Mapping[str, int] | None = None) -> LabelMap:
    """Find the head's class for every label of a source.

    In this order: the `explicit` table (``--classes``); WordNet ids by timm's table for a head of that size;
    integers as they are (−1 = unknown), except where they are folder names; names in sorted order where there are
    as many as classes. Sources may cover only some of the classes.

    Parameters
    ----------
    classes : int
        K of the head.

    Raises
    ------
    InputError
        Naming the first label that fits no class, before any image is read.
    """
    values = source.label_values
    missing = source.items["label"].null_count
    if missing:
        first = source.items.filter(pa.compute.is_null(source.items["label"]))["key"][0].as_py()
        what = "has no labels" if not values else f"has {missing:,} images without a label, first {first!r}"
        raise InputError("--data", source.uri, what, "--unknown, if these are unknowns")
    if explicit is not None:
        return _by_table(source, values, classes, explicit)
    if all(_WNID.fullmatch(value) for value in values):
        subset = _imagenet_of(classes)
        if subset is not None:
            return _by_wnid(source, values, subset)
    if source.kind != "folder" and all(_INTEGER.fullmatch(value) for value in values):
        return _by_integer(source, values, classes)
    return _by_order(source, values, classes)


def load_classes(uri: str) -> dict[str, int]:
    """Read a ``--classes`` file.

    A JSON or YAML object name → index, a JSON or YAML list of names in the head's order, or text with a line
    ``name index`` for each class, or a name alone in the head's order.
    """
    filesystem, path = resolve(uri, "--classes")
    try:
        text = read_bytes(filesystem, path).decode("utf-8-sig")
        suffix = posixpath.splitext(path)[1].lower()
        if suffix == ".json":
            table = json.loads(text)
        elif suffix in (".yaml", ".yml"):
            table = safe_yaml.load(text)
        else:
            table = _from_lines(text)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("--classes", uri, f"cannot be read: {one_line(error)}") from error
    if isinstance(table, list):
        if len({str(name) for name in table}) != len(table):
            raise InputError("--classes", uri, "names a class twice")
        table = {str(name): index for index, name in enumerate(table)}
    wrong = "a table name → index is needed" if not isinstance(table, dict) or not table else ""
    for name, index in table.items() if isinstance(table, dict) else ():
        if not isinstance(index, int) or isinstance(index, bool):
            wrong = f"{name!r} has {index!r}, an integer is needed"
            break
    if wrong:
        raise InputError("--classes", uri, wrong, "lines `name index`, or JSON or YAML {name: index}")
    return {str(name): index for name, index in table.items()}


def _from_lines(text: str) -> dict[str, int] | list[str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    pairs = [re.split(r"[\t, ]+(?=-?\d+$)", line) for line in lines]
    if not all(len(pair) == 2 for pair in pairs):
        return lines
    table = {name: int(index) for name, index in pairs}
    if len(table) != len(pairs):
        raise ValueError("names a class twice")
    return table


def _by_table(source: Source, values: list[str], classes: int, table: Mapping[str, int]) -> LabelMap:
    outside = next((name for name, index in table.items() if not UNKNOWN <= index < classes), None)
    if outside is not None:
        problem = f"{outside!r} has index {table[outside]}, the head's classes are 0 to {classes - 1}"
        raise InputError("--classes", source.uri, problem)
    for value in values:
        if value not in table:
            raise _no_class(source, value, "is not in --classes", nearest(value, table))
    names: list[str | None] = [None] * classes
    for name, index in table.items():
        if index != UNKNOWN and names[index] is None:
            names[index] = name
    filled = [str(index) if name is None else name for index, name in enumerate(names)]
    return LabelMap({value: table[value] for value in values}, "classes", filled)


def _imagenet_of(classes: int) -> str | None:
    """The set of WordNet ids that timm takes a head of this size to be trained on."""
    from timm.data.imagenet_info import infer_imagenet_subset

    return infer_imagenet_subset({"num_classes": classes})


def _by_wnid(source: Source, values: list[str], subset: str) -> LabelMap:
    from timm.data.imagenet_info import ImageNetInfo

    info: Any = ImageNetInfo(subset)
    place = {wnid: index for index, wnid in enumerate(info.label_names())}
    for value in values:
        if value not in place:
            raise _no_class(source, value, f"is none of the {len(place)} WordNet ids of {subset}")
    return LabelMap({value: place[value] for value in values}, "wnid", info.label_descriptions())


def _by_integer(source: Source, values: list[str], classes: int) -> LabelMap:
    index = {value: int(value) for value in values}
    for value, number in index.items():
        if not UNKNOWN <= number < classes:
            raise _no_class(source, value, f"the head's classes are 0 to {classes - 1} (−1: unknown)")
    names = source.class_names if source.class_names and len(source.class_names) == classes else None
    return LabelMap(index, "integer", names)


def _by_order(source: Source, values: list[str], classes: int) -> LabelMap:
    names = sorted(source.class_names if source.kind == "folder" and source.class_names else values)
    if len(names) != classes:
        first = values[0]
        problem = f"is one of {len(names)} names and the head has {classes} classes, so their order says nothing"
        raise _no_class(source, first, problem)
    notes = []
    if sorted(names, key=_natural) != names:
        notes.append(
            "classes are numbered in the order of their names as text (10 before 2), as torchvision does;"
            " if the head was trained in another order, say it with --classes"
        )
    return LabelMap({name: index for index, name in enumerate(names)}, "sorted", names, notes)


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]


def _no_class(source: Source, value: str, problem: str, hint: str = "") -> InputError:
    advice = hint or "--classes FILE with lines `name index`, or --unknown"
    return InputError("--data", source.uri, f"label {value!r} fits no class of the head: {problem}", advice)
