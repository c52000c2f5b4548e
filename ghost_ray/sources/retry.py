"""Trying again what an object store dropped; what the data broke fails at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from pyarrow import fs

_PAUSES = (0.1, 0.5, 2.0)  # seconds before each further attempt
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError)

T = TypeVar("T")


def attempts(filesystem: fs.FileSystem) -> Iterator[bool]:
    """A turn for each attempt, saying whether it is the last; pauses in between.

    One turn on a local file system: a disk that fails will fail again.
    """
    pauses = () if isinstance(filesystem, fs.LocalFileSystem) else _PAUSES
    for pause in pauses:
        yield False
        time.sleep(pause)
    yield True


def retried(filesystem: fs.FileSystem, call: Callable[[], T]) -> T:
    """The result of `call`, tried again on a remote file system where it ends in an OSError.

    A missing object is missing however often one asks.
    """
    for last in attempts(filesystem):
        try:
            return call()
        except _FINAL:
            raise
        except OSError:
            if last:
                raise
    raise AssertionError("the last attempt returns or raises")
