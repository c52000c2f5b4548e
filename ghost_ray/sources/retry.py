"""Trying again what an object store dropped, waiting for one that is down; what the data broke fails at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from pyarrow import fs

from ghost_ray.errors import JobFailed, one_line

_PAUSES = (0.1, 0.5, 2.0)  # seconds before each further attempt
_PATIENCE = 30.0  # seconds that a store may be down
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


def was_down(filesystem: fs.FileSystem, folder: str) -> bool:
    """Whether something failed because the store as a whole does not answer; waits until it does again.

    False where it answers at once: then the fault is the object's own. JobFailed where it stays down.
    """
    deadline, found_down = time.monotonic() + _PATIENCE, False
    while True:
        try:
            filesystem.get_file_info(folder)
            return found_down
        except OSError as error:
            if time.monotonic() > deadline:
                said = one_line(error)
                raise JobFailed(f"the object store does not answer: {said} — run the same command again") from None
            found_down = True
            time.sleep(_PAUSES[-1])
