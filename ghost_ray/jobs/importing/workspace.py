"""Arrays larger than memory: mapped in place, or as a local copy."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator

import numpy as np

from ghost_ray.errors import JobFailed, one_line
from ghost_ray.files import is_local, open_input, resolve

_COPY_BYTES = 8 << 20
_FORGET_BYTES = 256 << 20


class Workspace:
    """The mapped files of one import, and a scratch folder for what cannot be mapped as it is."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._maps: dict[str, mmap.mmap] = {}
        self._files = 0
        self._used = 0

    def local(self, uri: str) -> str:
        """A path of this machine for a file: its own, or that of a copy."""
        if is_local(uri):
            return resolve(uri)[1]
        with open_input(uri) as source:
            return self.spool_bytes(iter(lambda: source.read(_COPY_BYTES), b""))

    def map(
        self, path: str, dtype: np.dtype, shape: tuple[int, ...], offset: int = 0, *, fortran: bool = False
    ) -> np.ndarray:
        """The array that begins at ``offset`` of a local file; ValueError if the file is too short for it."""
        needed = offset + int(np.prod(shape, dtype=object)) * dtype.itemsize
        size = os.path.getsize(path)
        if needed > size:
            raise ValueError(f"is truncated: {size:,} bytes, its header says {needed:,}")
        if needed == offset:
            return np.empty(shape, dtype)
        if path not in self._maps:
            with open(path, "rb") as handle:
                self._maps[path] = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        return np.ndarray(shape, dtype, self._maps[path], offset, order="F" if fortran else "C")

    def spool(self, blocks: Iterable[np.ndarray], tail: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Arrays [n, *tail], one after the other, as one mapped array."""
        path = self.spool_bytes(np.ascontiguousarray(block, dtype).data for block in blocks)
        row_bytes = int(np.prod(tail)) * dtype.itemsize
        return self.map(path, dtype, (os.path.getsize(path) // row_bytes if row_bytes else 0, *tail))

    def spool_bytes(self, blocks: Iterable[bytes | memoryview]) -> str:
        """Blocks of a stream as a local file; its path."""
        os.makedirs(self._folder, exist_ok=True)
        self._files += 1
        path = os.path.join(self._folder, f"{self._files}.raw")
        with open(path, "wb") as copy:
            for block in blocks:
                with _told_as_failure(path):
                    copy.write(block)
            with _told_as_failure(path):
                copy.flush()
        return path

    def used(self, size: int) -> None:
        """Count bytes that are no longer needed; now and then, return the memory of their pages."""
        self._used += size
        if self._used >= _FORGET_BYTES:
            self._used = 0
            for mapped in self._maps.values():
                mapped.madvise(mmap.MADV_DONTNEED)


@contextlib.contextmanager
def _told_as_failure(path: str) -> Iterator[None]:
    """A full disk is not the fault of the input."""
    try:
        yield
    except OSError as error:
        raise JobFailed(f"no room for a copy to read from: {one_line(error)} ({path})") from None


@contextlib.contextmanager
def workspace(beside: str) -> Iterator[Workspace]:
    """A workspace on the disk of the folder ``beside``, or among the temporary files where that is not local."""
    parent = beside if is_local(beside) else tempfile.mkdtemp(prefix="ghost-ray-")
    folder = os.path.join(parent, "scratch")
    try:
        yield Workspace(folder)
    finally:
        shutil.rmtree(folder if is_local(beside) else parent, ignore_errors=True)
