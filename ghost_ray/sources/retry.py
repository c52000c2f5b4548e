"""Trying again what an object store dropped, waiting for one that is down; what the data broke fails at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from pyarrow import fs

from ghost_ray.config.policies import REQUEST_PAUSES, STORE_PATIENCE
from ghost_ray.errors import JobFailed, one_line
from ghost_ray.files.causes import cause_of, reaching

_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError)
_REFUSALS = ("forbidden", "wrong region")
_PASSING = ("unreachable", "slow")
_PATIENCE = 5.0  # seconds after which no further attempt is begun

T = TypeVar("T")


def attempts(filesystem: fs.FileSystem) -> Iterator[bool]:
    """A turn for each attempt, saying whether it is the last; pauses in between.

    One turn on a local file system: a disk that fails will fail again.
    """
    pauses = () if isinstance(filesystem, fs.LocalFileSystem) else REQUEST_PAUSES
    for pause in pauses:
        yield False
        time.sleep(pause)
    yield True


def retried(filesystem: fs.FileSystem, call: Callable[[], T]) -> T:
    """The result of `call`, tried again on a remote file system where it ends in an OSError.

    A missing object is missing however often one asks, and who may not read it now may not in a second. A store that
    took long to say nothing is not asked again: somebody waits for the answer.
    """
    deadline = time.monotonic() + _PATIENCE
    for last in attempts(filesystem):
        try:
            return call()
        except _FINAL:
            raise
        except OSError as error:
            if last or cause_of(error) in _REFUSALS or time.monotonic() > deadline:
                raise
    raise AssertionError("the last attempt returns or raises")


def was_down(filesystem: fs.FileSystem, folder: str) -> bool:
    """Whether something failed because the store as a whole does not answer; waits until it does again.

    False where it answers at once: then the fault is the object's own. JobFailed where it stays down.
    """
    deadline, found_down = time.monotonic() + STORE_PATIENCE, False
    while True:
        try:
            filesystem.get_file_info(folder)
            return found_down
        except OSError as error:
            if time.monotonic() > deadline:
                said = one_line(error)
                raise JobFailed(f"the object store does not answer: {said} — run the same command again") from None
            found_down = True
            time.sleep(REQUEST_PAUSES[-1])


def listed(filesystem: fs.FileSystem, folder: str, uri: str, listing: Callable[[], T]) -> T:
    """The result of `listing`, made once more where the store was down; an error by its cause where it stays one."""
    with reaching(uri, "data"):
        try:
            return listing()
        except OSError as error:
            if cause_of(error) not in _PASSING or not was_down(filesystem, folder):
                raise
        return listing()
