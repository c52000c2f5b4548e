"""Labels as people keep them, as indices of the head's classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ghost_ray.errors import InputError, one_line, redact
from ghost_ray.files import parse_json, read_bytes
from ghost_ray.jobs.importing.choosing import text_column
from ghost_ray.sources import RawLabels, match_labels
from ghost_ray.store import UNKNOWN

_MAX_NAMES_BYTES = 64 << 20


@dataclass(frozen=True)
class Labels:
    """Indices [N] int32, and the names of the K classes where they are known."""

    index: np.ndarray
    class_names: list[str] | None


def read_labels(values: np.ndarray, classes: int, names: list[str] | None, *, field: str, given: str) -> Labels:
    """Indices as they are (−1 = unknown), or names by ``names``, by WordNet's table or in sorted order.

    Parameters
    ----------
    values : [N]
        Numbers, or text.
    names : list of str, optional
        Of the K classes.
    field, given : str
        What an error is about.
    """
    if values.dtype.kind in "OUS":
        return _from_text(values, classes, names, field, given)
    index = _whole(values.astype(np.int64) if values.dtype.kind == "b" else values, field, given)
    bad = np.flatnonzero((index < UNKNOWN) | (index >= classes))
    if len(bad):
        known = index[index != UNKNOWN]
        from_one = known.min() == 1 and known.max() == classes
        hint = f"they run from 1 to {classes}: subtract 1" if from_one else ""
        problem = f"row {bad[0]} has label {index[bad[0]]}, allowed: −1…{classes - 1}"
        raise InputError(field, redact(given), problem, hint)
    return Labels(index.astype(np.int32), names)


def _whole(values: np.ndarray, field: str, given: str) -> np.ndarray:
    if values.dtype.kind not in "fiu":
        raise InputError(field, redact(given), f"holds values of type {values.dtype}, expected class indices or names")
    whole = np.rint(values)
    bad = np.flatnonzero(~(np.isfinite(values) & (whole == values)))
    if len(bad):
        raise InputError(
            field, redact(given), f"labels must be whole numbers or names, row {bad[0]} has {values[bad[0]]}"
        )
    return np.asarray(whole, np.int64)


def _from_text(values: np.ndarray, classes: int, names: list[str] | None, field: str, given: str) -> Labels:
    words = text_column(values, given, field)
    if words.null_count:
        row = int(np.flatnonzero(words.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(field, redact(given), f"row {row} has no label")
    codes = words.dictionary_encode()
    found: list[str] = codes.dictionary.to_pylist()
    numbers = _numbers(found)
    if numbers is not None:
        return read_labels(numbers[codes.indices.to_numpy()], classes, names, field=field, given=given)
    table = None if names is None else _table(names, set(found), given)
    raw = RawLabels(
        sorted(set(found) - {str(UNKNOWN)}),
        redact(given),
        field=field,
        hint="`class_names=FILE` with the names of all classes, one per line, in the order of the logits",
    )
    matched = match_labels(raw, classes, table)
    index = {**matched.index, str(UNKNOWN): UNKNOWN}
    of_code = np.array([index[word] for word in found], np.int32)
    return Labels(of_code[codes.indices.to_numpy()], names or matched.class_names)


def _numbers(words: list[str]) -> np.ndarray | None:
    """Words that are all numbers, as these."""
    try:
        return np.array([float(word) for word in words])
    except ValueError:
        return None


def _table(names: list[str], used: set[str], given: str) -> dict[str, int]:
    table: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in table and name in used:
            raise InputError(
                "labels", redact(given), f"{name!r} names the classes {table[name]} and {index}", "give indices"
            )
        table[name] = index
    return table


def read_class_names(path: str, classes: int) -> list[str]:
    """The names of the K classes: a JSON list, or one per line."""
    try:
        data = read_bytes(path, limit=_MAX_NAMES_BYTES)
        text = data.decode("utf-8-sig")
        names = parse_json(data) if text.lstrip().startswith("[") else text.splitlines()
    except (OSError, ValueError) as error:
        raise InputError("class_names", redact(path), f"cannot be read: {one_line(error)}") from None
    if len(names) != classes:
        raise InputError("class_names", redact(path), f"has {len(names)} names, the logits have {classes} classes")
    return [str(name) for name in names]


def narrowed(labels: np.ndarray, kept: list[int], classes: int, *, field: str, given: str) -> np.ndarray:
    """Labels of the whole head as labels of a head with the classes ``kept`` alone."""
    place = np.full(classes + 1, -2, np.int32)
    place[UNKNOWN] = UNKNOWN  # the last, which index −1 means
    place[kept] = np.arange(len(kept))
    found: np.ndarray = place[labels]
    bad = np.flatnonzero(found == -2)
    if len(bad):
        problem = f"row {bad[0]} is of class {labels[bad[0]]} of the whole head, which was not kept"
        raise InputError(field, redact(given), problem, "leave such rows out, or import them with `unknown`")
    return found
