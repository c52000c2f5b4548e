"""Which array of a file is meant, and the array itself: ``FILE``, or ``FILE#NAME`` where a file holds several."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ghost_ray.errors import GhostRayError, InputError, nearest, one_line, redact
from ghost_ray.files import is_local, kind_of
from ghost_ray.files.manifest import MAX_CLASSES, MAX_DIMENSIONS
from ghost_ray.jobs.importing.readers import ArrayFile, Entry, open_arrays, unreadable
from ghost_ray.jobs.importing.readers.customary import means
from ghost_ray.jobs.importing.readers.tables import ALL
from ghost_ray.jobs.importing.workspace import Workspace

_MATRICES = ("features", "logits")


def split_name(given: str) -> tuple[str, str]:
    """``s3://bucket/data.npz#feats`` as its file and the name in it; a local file may have a # in its own name."""
    uri, mark, name = given.rpartition("#")
    if not mark or not uri or (is_local(given) and kind_of(given) != "nothing"):
        return given, ""
    return uri, name


def open_given(given: str, field: str, workspace: Workspace) -> ArrayFile:
    """The file that a setting names."""
    return open_arrays(split_name(given)[0], field, workspace)


def load(file: ArrayFile, given: str, field: str) -> np.ndarray:
    """The array that a setting means, mapped; InputError says what the file holds if it has no such array."""
    uri, name = split_name(given)
    return load_entry(choose(file, field, name, uri), uri, field)


def load_entry(entry: Entry, uri: str, field: str) -> np.ndarray:
    """An array by its entry."""
    try:
        return entry.load()
    except GhostRayError:
        raise
    except Exception as error:  # as when it was opened
        raise unreadable(field, uri, error) from None


def choose(file: ArrayFile, field: str, name: str, uri: str) -> Entry:
    """The entry of that name, the only one, the one with a common name, or the only one of the right shape."""
    if name:
        found = file.find(name)
        if found is None:
            close = nearest(name, [entry.name for entry in file.entries])
            raise InputError(field, redact(uri), f"holds no {name!r}; it holds {file.describe()}", close)
        return found
    if len(file.entries) == 1:
        return file.entries[0]
    candidates = [entry for entry in file.entries if means(entry.name, field)] or _of_right_shape(file, field)
    if len(candidates) == 1:
        return candidates[0]
    several = (
        f"several arrays that could be the {field}: {file.describe(candidates)}" if candidates else file.describe()
    )
    raise InputError(field, redact(uri), f"holds {several}", f"say which with `{field}=FILE#NAME`")


def _of_right_shape(file: ArrayFile, field: str) -> list[Entry]:
    wide = [entry for entry in file.entries if (len(entry.shape) > 1) == (field in _MATRICES)]
    others = [entry for entry in wide if not any(means(entry.name, other) for other in _MATRICES if other != field)]
    return [entry for entry in others if entry.name != ALL] or others


def matrix(array: np.ndarray, given: str, field: str, notes: list[str]) -> np.ndarray:
    """Numbers as [N, width]; further axes of length 1 are dropped, with a note."""
    if array.dtype.kind not in "fiu":
        raise InputError(field, redact(given), f"holds {_content(array)}, expected numbers")
    found = array.shape
    if array.ndim > 2 and max(found[2:]) == 1:
        array = array.reshape(found[:2])
    elif array.ndim > 2 and found[1:-1] == (1,) * (array.ndim - 2):
        array = array.reshape(found[0], found[-1])
    if array.ndim > 2:
        raise InputError(
            field,
            redact(given),
            f"has shape {found}, expected 2 axes with one row per sample",
            "average over the positions of the feature map first" if field == "features" else "",
        )
    if array.ndim < 2:
        raise InputError(field, redact(given), f"has shape {found}, expected 2 axes with one row per sample")
    most = MAX_DIMENSIONS if field == "features" else MAX_CLASSES
    if not 0 < array.shape[1] <= most:
        raise InputError(field, redact(given), f"has shape {found}, expected 1 to {most:,} columns")
    if array.shape != found:
        notes.append(f"{field}: the shape {_sizes(found)} was taken as {_sizes(array.shape)}")
    return array


def column(array: np.ndarray, given: str, field: str) -> np.ndarray:
    """One value per row, [N]; axes of length 1 are dropped."""
    if array.ndim > 1 and max(array.shape[1:]) == 1:
        array = array.reshape(len(array))
    if array.ndim != 1:
        one_hot = array.ndim == 2 and field == "labels" and array.dtype.kind in "fiub"
        hint = "one-hot rows become indices by argmax(axis=1)" if one_hot else ""
        raise InputError(field, redact(given), f"has shape {array.shape}, expected one value per row", hint)
    return array


def text_column(values: np.ndarray, given: str, field: str) -> pa.Array:
    """One text per row; None where there is none."""
    try:
        return pa.array(values.astype(str) if values.dtype.kind in "iuUS" else values, pa.string())
    except (UnicodeError, pa.ArrowException) as error:
        raise InputError(field, redact(given), f"holds what is not valid text: {one_line(error)}") from None


def _content(array: np.ndarray) -> str:
    return "text" if array.dtype.kind in "OUS" else f"values of type {array.dtype}"


def _sizes(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
