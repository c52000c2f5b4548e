"""What a reader returns: the arrays of a file by name, described at once and loaded on demand.

A reader is registered for the kinds of content it reads. To add one, write a module beside this with a function under
``@reads(kind)``, and name the module in ``__init__``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ghost_ray.errors import GhostRayError, InputError, one_line, redact
from ghost_ray.files import kind_of
from ghost_ray.files.file_types import DESCRIPTIONS, Content, recognise
from ghost_ray.jobs.importing.workspace import Workspace

READABLE = ".npy, .npz, .pt, .pth, .safetensors, Parquet or CSV"
_SHOWN = 8


@dataclass(frozen=True)
class Entry:
    """One array of a file. ``load`` maps it, or copies it to where it can be mapped."""

    name: str  # empty where the file holds nothing else
    shape: tuple[int | None, ...]  # None if unknown before reading
    dtype: str  # as the file calls it
    load: Callable[[], np.ndarray]

    def describe(self) -> str:
        """``features 50000×1280 float32``."""
        sizes = "×".join("?" if size is None else str(size) for size in self.shape)
        return " ".join(part for part in (self.name, sizes, self.dtype) if part)


class ArrayFile:
    """A file that holds arrays."""

    def __init__(self, kind: str, entries: Iterable[Entry]) -> None:
        self.kind, self.entries = kind, list(entries)

    def find(self, name: str) -> Entry | None:
        """The array of that name."""
        return next((entry for entry in self.entries if entry.name == name), None)

    def describe(self, entries: Sequence[Entry] | None = None) -> str:
        """What is in it, as an error says it."""
        chosen = self.entries if entries is None else entries
        more = f" and {len(chosen) - _SHOWN:,} more" if len(chosen) > _SHOWN else ""
        return ", ".join(entry.describe() for entry in chosen[:_SHOWN]) + more or "nothing"


Reader = Callable[[str, Workspace], ArrayFile]
_readers: dict[Content, Reader] = {}


def reads(*kinds: Content) -> Callable[[Reader], Reader]:
    """Register a reader for kinds of content."""

    def register(reader: Reader) -> Reader:
        for kind in kinds:
            if kind in _readers:
                raise ValueError(f"two readers for {kind}: {_readers[kind].__qualname__}, {reader.__qualname__}")
            _readers[kind] = reader
        return reader

    return register


def readable_kinds() -> list[Content]:
    """The kinds of content that have a reader."""
    return list(_readers)


def open_arrays(uri: str, field: str, workspace: Workspace) -> ArrayFile:
    """Look into a file, or into a folder of Parquet files; InputError names what was found if it is not an array."""
    shown = redact(uri)
    try:
        there = kind_of(uri)
        content: Content = recognise(uri) if there == "file" else "parquet"
    except OSError as error:
        raise InputError(field, shown, f"cannot be read: {one_line(error)}") from None
    if there == "nothing":
        raise InputError(field, shown, "does not exist", f"name a file: {READABLE}")
    if content not in _readers:
        raise InputError(field, shown, f"is {DESCRIPTIONS[content]}", f"readable are {READABLE}")
    try:
        return _readers[content](uri, workspace)
    except GhostRayError:
        raise
    except Exception as error:  # a damaged file raises one of a dozen types, few of them documented
        raise unreadable(field, uri, error) from None


def unreadable(field: str, uri: str, error: Exception) -> InputError:
    """The error for a file of a supported kind that cannot be read."""
    what = DESCRIPTIONS[recognise(uri)] if kind_of(uri) == "file" else "a folder"
    return InputError(field, redact(uri), f"is {what}, but {one_line(error)}")
