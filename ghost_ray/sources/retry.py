"""Reading from a store that may fail for a while: what may pass is waited for, and never becomes a damaged image."""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
from pyarrow import fs

from ghost_ray.config.policies import STORE_PATIENCE
from ghost_ray.errors import JobFailed, one_line, redact
from ghost_ray.files.causes import cause_of, explained
from ghost_ray.progress import say

PATIENCE = "GHOST_RAY_STORE_PATIENCE"
"""The environment variable with other seconds than `STORE_PATIENCE`."""

_SOON = 5.0  # seconds; at the start of a command someone is waiting for the answer
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 15.0
_SAID_AFTER = 10.0
# A file that cannot be opened for want of memory or descriptors is not damaged.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)

T = TypeVar("T")


def may_pass(filesystem: fs.FileSystem, error: OSError) -> bool:
    """Whether a request failed because of the store, and not because of what was asked for.

    On an object store that is everything but an object that is absent or forbidden: what the store does hold is told by
    its content. A local disk that fails will fail again, unless a server is behind it.
    """
    cause = cause_of(error)
    if isinstance(filesystem, fs.LocalFileSystem):
        return cause in ("unreachable", "slow") or error.errno in _SHORTAGES
    return cause not in ("absent", "forbidden", "wrong region") and not isinstance(error, IsADirectoryError)


def retried(filesystem: fs.FileSystem, call: Callable[[], T]) -> T:
    """The result of `call`, repeated for a few seconds; the OSError that remains then."""
    return _repeated(filesystem, call, _SOON, "")


def patiently(filesystem: fs.FileSystem, path: str, call: Callable[[], T]) -> T:
    """The result of `call`, which reads something at `path`, repeated for as long as the store may come back.

    Raises
    ------
    OSError
        If what was asked for is not there, or is damaged.
    Unreachable, JobFailed
        If the store did not come back.
    InputError
        If the store denies access.
    """
    place = path if isinstance(filesystem, fs.LocalFileSystem) else f"{filesystem.type_name}://{path}"
    patience = float(os.environ.get(PATIENCE) or STORE_PATIENCE)
    try:
        return _repeated(filesystem, call, patience, redact(place))
    except OSError as error:
        on_store = not isinstance(filesystem, fs.LocalFileSystem)
        # Credentials that end midway say nothing about what they led to.
        denied = on_store and cause_of(error) in ("forbidden", "wrong region")
        if not denied and not may_pass(filesystem, error):
            raise
        if cause_of(error):
            raise explained(error, "data", place) from None
        said = f"data '{redact(place)}': {one_line(error)}"
        raise JobFailed(f"{said} — finished work is kept; run the same command again") from None


def _repeated(filesystem: fs.FileSystem, call: Callable[[], T], patience: float, place: str) -> T:
    start, pause, said = time.monotonic(), _FIRST_PAUSE, not place
    while True:
        try:
            return call()
        except OSError as error:
            waited = time.monotonic() - start
            if not may_pass(filesystem, error) or waited + pause > patience:
                raise
            if waited > _SAID_AFTER and not said:
                said = True
                say(f"waiting for {place}: {one_line(error)}")
        # Not all workers at the same moment: they would keep a throttled store busy.
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, _LONGEST_PAUSE)


class SteadyFile:
    """A file of a source, on any file system. A read is whole, ends with the file, or raises as `patiently` does.

    It is also what `pyarrow.PythonFile` takes, so that requests of pyarrow's own are repeated the same way.
    """

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._filesystem, self._path = filesystem, path
        self._handle, self.length = patiently(filesystem, path, self._open)
        self._at = 0

    def _open(self) -> tuple[pa.NativeFile, int]:
        handle = self._filesystem.open_input_file(self._path)
        return handle, handle.size()

    def read_at(self, count: int, offset: int) -> bytes:
        """So many bytes from `offset` on; fewer at the end of the file."""
        due = max(0, min(count, self.length - offset))

        def read() -> bytes:
            data = bytes(self._handle.read_at(due, offset))
            if len(data) < due and not isinstance(self._filesystem, fs.LocalFileSystem):
                raise ConnectionError(f"the answer is truncated, {len(data):,} of {due:,} bytes")
            return data

        return patiently(self._filesystem, self._path, read)

    def read(self, count: int = -1) -> bytes:
        data = self.read_at(self.length if count is None or count < 0 else count, self._at)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.length}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self._handle.close()

    @property
    def closed(self) -> bool:
        return bool(self._handle.closed)

    def __enter__(self) -> SteadyFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
