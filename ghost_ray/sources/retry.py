"""Retries failed requests to an object store and waits for one that is down; data errors fail at once."""

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
    """Yields once per attempt, with whether it is the last; pauses in between.

    Only one attempt on a local file system: a disk that fails will fail again.
    """
    pauses = () if isinstance(filesystem, fs.LocalFileSystem) else REQUEST_PAUSES
    for pause in pauses:
        yield False
        time.sleep(pause)
    yield True


def retried(filesystem: fs.FileSystem, call: Callable[[], T]) -> T:
    """The result of `call`, retried on a remote file system if it raises an OSError.

    A missing object and a denied access are not retried. Nor is a store that took long without an answer: the caller is
    waiting.
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
    """Whether something failed because the whole store does not answer; waits until it does again.

    False if it answers at once: then only the object is broken. JobFailed if it stays down.
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
    """The result of `listing`, repeated once if the store was down; a lasting error is raised with its cause."""
    with reaching(uri, "data"):
        try:
            return listing()
        except OSError as error:
            if cause_of(error) not in _PASSING or not was_down(filesystem, folder):
                raise
        return listing()
