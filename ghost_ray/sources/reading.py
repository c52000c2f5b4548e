"""The files of a source: listing and reading them.

A store may fail for a while. What may pass is waited for, and never becomes a damaged image.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import random
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
from pyarrow import fs

from ghost_ray.config.limits import STORE_PATIENCE, Stage
from ghost_ray.errors import InputError, JobFailed, one_line, redact
from ghost_ray.files import reaching
from ghost_ray.files.storage_errors import cause_of, explained
from ghost_ray.progress import say
from ghost_ray.sources.source import LISTERS, Failure, Image, safe_key

WAIT_VARIABLE = "GHOST_RAY_STORE_PATIENCE"
"""The environment variable with other seconds than `STORE_PATIENCE`."""

# Of one encoded image. A picture of the most pixels that are decoded is smaller in every format that packs its pixels;
# a worker holds several images at a time, some of them in two or three copies.
MAX_ENCODED_BYTES = 128 << 20
LOOK_AHEAD = 32 << 10  # a header, a label and the next header usually arrive with one request
_MOST_AHEAD = 4 << 20
_SOON = 5.0  # seconds; at the start of a command someone is waiting for the answer
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 15.0
_SAID_AFTER = 10.0
# A file that cannot be opened for want of memory or descriptors is not damaged.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
_NOT_REGULAR = "is not a regular file"
_MAX_DEPTH = 100  # of folders in folders: a path has 4,096 bytes at most, and Python a thousand calls

T = TypeVar("T")


def may_pass(filesystem: fs.FileSystem, error: OSError) -> bool:
    """Whether a request failed because of the store, and not because of what it was for.

    On an object store that is everything but an object that is absent or forbidden: what the store does hold is known
    by its content. A local disk that fails will fail again, unless a server is behind it.
    """
    cause = cause_of(error)
    if isinstance(filesystem, fs.LocalFileSystem):
        return cause in ("unreachable", "slow") or error.errno in _SHORTAGES
    return cause not in ("absent", "forbidden", "wrong region") and not isinstance(error, IsADirectoryError)


def retried(filesystem: fs.FileSystem, call: Callable[[], T]) -> T:
    """The result of `call`, repeated for a few seconds; the OSError that remains then."""
    return _repeated(filesystem, call, _SOON, "")


def retried_long(filesystem: fs.FileSystem, path: str, call: Callable[[], T]) -> T:
    """The result of `call`, which reads something at `path`, repeated for as long as the store may come back.

    Raises
    ------
    OSError
        If it is not there, or is damaged.
    Unreachable, JobFailed
        If the store did not come back.
    InputError
        If the store denies access.
    """
    local = isinstance(filesystem, fs.LocalFileSystem)
    place = path if local else f"{filesystem.type_name}://{path}"
    try:
        return _repeated(filesystem, call, float(os.environ.get(WAIT_VARIABLE) or STORE_PATIENCE), redact(place))
    except OSError as error:
        # Credentials that end midway say nothing about what they led to.
        denied = not local and cause_of(error) in ("forbidden", "wrong region")
        if not denied and not may_pass(filesystem, error):
            raise
        if cause_of(error):
            raise explained(error, "data", place) from None
        said = f"data '{redact(place)}': {one_line(error)}"
        raise JobFailed(f"{said} — finished work is kept; run the same command again") from None


def _repeated(filesystem: fs.FileSystem, call: Callable[[], T], seconds: float, place: str) -> T:
    start, pause, said = time.monotonic(), _FIRST_PAUSE, not place
    while True:
        try:
            return call()
        except OSError as error:
            waited = time.monotonic() - start
            if not may_pass(filesystem, error) or waited + pause > seconds:
                raise
            if waited > _SAID_AFTER and not said:
                said = True
                say(f"waiting for {place}: {one_line(error)}")
        # Not all workers at the same moment: they would keep a throttled store busy.
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, _LONGEST_PAUSE)


class SteadyFile:
    """A file of a source, on any file system. A read is whole, ends with the file, or raises as `retried_long` does.

    It is also what `pyarrow.PythonFile` takes, so that requests of pyarrow's own are repeated the same way.
    """

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._filesystem, self._path = filesystem, path
        self._handle, self.length = retried_long(filesystem, path, self._open)
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

        return retried_long(self._filesystem, self._path, read)

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


@dataclass
class ReadAhead:
    """Reads at increasing offsets; one request serves many reads, and no byte is requested twice.

    Reads that follow each other closely make the requests larger, up to `_MOST_AHEAD`; a jump makes them small again.
    """

    file: SteadyFile
    length: int
    _offset: int = 0
    _held: bytes = field(default=b"", repr=False)
    _ahead: int = LOOK_AHEAD

    def read(self, offset: int, count: int) -> bytes:
        end = self._offset + len(self._held)
        if not self._offset <= offset <= end:
            near = 0 <= offset - end <= LOOK_AHEAD
            self._ahead = self._ahead if near else LOOK_AHEAD
            self._offset, self._held, end = offset, b"", offset
        missing = offset + count - end
        if missing > 0:
            wanted = max(missing, self._ahead)
            self._held = self._held[offset - self._offset :] + self.file.read_at(wanted, end)
            self._offset = offset
            self._ahead = min(2 * self._ahead, _MOST_AHEAD)
        at = offset - self._offset
        return self._held[at : at + count]


def read_bytes(filesystem: fs.FileSystem, path: str) -> bytes:
    """The content of a file; OSError if it is not there, damaged, or larger than an image may be.

    Another error is raised if the store does not answer.
    """
    if isinstance(filesystem, fs.LocalFileSystem) and not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(_NOT_REGULAR)  # opening a FIFO waits for whoever writes to it
    with SteadyFile(filesystem, path) as file:
        if file.length > MAX_ENCODED_BYTES:
            raise OSError(too_large(file.length))
        return file.read()


def too_large(size: int) -> str:
    """Why an image of so many bytes is not read."""
    return f"is {size:,} bytes long, more than the {MAX_ENCODED_BYTES:,} that an image may have"


def read_error(error: BaseException) -> str:
    """Why a file could not be read; for common reasons, without the machine's own paths."""
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, PermissionError):
        return "permission denied"
    return one_line(error)


@dataclass(frozen=True)
class FileReader:
    """Every item is a separate file."""

    filesystem: fs.FileSystem
    base: str

    def read(self, items: pa.Table) -> Iterator[Image]:
        for key, file in zip(items["key"].to_pylist(), items["file"].to_pylist(), strict=True):
            try:
                yield Image(key, read_bytes(self.filesystem, posixpath.join(self.base, file)), None)
            except (OSError, pa.ArrowException) as error:
                yield Image(key, None, read_error(error))


@dataclass
class Listing:
    """Names relative to the folder, unsorted; sizes beside them (−1: only reading will tell)."""

    names: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)  # the subfolders at the top, also those without files
    failures: list[Failure] = field(default_factory=list)
    limit: int | None = None  # of names; what comes after it is left out
    complete: bool = True  # whether nothing was left out

    def add(self, name: str, size: int) -> None:
        if self.full:
            self.complete = False
        else:
            self.names.append(name)
            self.sizes.append(size)

    @property
    def full(self) -> bool:
        return self.limit is not None and len(self.names) >= self.limit


def list_files(filesystem: fs.FileSystem, folder: str, uri: str, limit: int | None = None) -> Listing:
    """The files below `folder`, however deep; with `limit` so many of them, and all subfolders at the top."""
    listing = Listing(limit=limit)
    with _explained(uri):
        _list_all(filesystem, folder, listing)
    return listing


def list_subfolder(filesystem: fs.FileSystem, base: str, subfolder: str, uri: str) -> Listing:
    """The files below a subfolder of `base`; for the subfolder '', those of `base` that are in none."""

    def list_it() -> Listing:
        listing = Listing()
        if not isinstance(filesystem, fs.LocalFileSystem):
            _add(_infos(filesystem, posixpath.join(base, subfolder), bool(subfolder)), base, listing)
        elif not subfolder:
            _add_files(base, "", listing)
        else:
            folder = os.path.join(base, subfolder)
            way = _Way.at(base).down(subfolder, os.path.islink(folder))
            if way is not None:
                _walk(folder, f"{subfolder}/", listing, way)
        return listing

    with _explained(uri):
        return retried_long(filesystem, posixpath.join(base, subfolder), list_it)


@contextlib.contextmanager
def _explained(uri: str) -> Iterator[None]:
    try:
        with reaching(uri, "data"):
            yield
    except pa.ArrowException as error:
        raise InputError("data", uri, f"cannot be listed: {one_line(error)}") from error


def _list_all(filesystem: fs.FileSystem, folder: str, listing: Listing) -> None:
    if isinstance(filesystem, fs.LocalFileSystem):
        entries = _add_files(folder, "", listing)
        listing.folders += [entry.name for entry in entries]
        for entry in entries:
            _below(entry, "", listing, _Way.at(folder))
        return
    infos = _infos(filesystem, folder, False)
    _add(infos, folder, listing)
    listing.folders += [info.base_name for info in infos if info.type == fs.FileType.Directory]
    with ThreadPoolExecutor(LISTERS) as pool:
        for first in range(0, len(listing.folders), LISTERS):
            if listing.full:
                listing.complete = False
                return
            paths = [posixpath.join(folder, name) for name in listing.folders[first : first + LISTERS]]
            for infos in pool.map(lambda path: _infos(filesystem, path, True), paths):
                _add(infos, folder, listing)


def _infos(filesystem: fs.FileSystem, path: str, recursive: bool) -> list[fs.FileInfo]:
    selector = fs.FileSelector(path, recursive=recursive)
    return retried(filesystem, lambda: list(filesystem.get_file_info(selector)))


def _add(infos: Iterable[fs.FileInfo], base: str, listing: Listing) -> None:
    for info in infos:
        if info.type == fs.FileType.File:
            listing.add(info.path[len(base) :].lstrip("/"), -1 if info.size is None else info.size)


@dataclass(frozen=True)
class _Way:
    """The real folders from the top to where a walk is, and the links that it has followed so far in this shard.

    Each link is followed once: where folders link to each other, the ways through them are as many as their orders.
    """

    folders: tuple[str, ...]
    followed: set[str] = field(default_factory=set)

    @staticmethod
    def at(folder: str) -> _Way:
        return _Way((os.path.realpath(folder),))

    def down(self, name: str, is_link: bool) -> _Way | None:
        """The way into a subfolder; None where it leads back to a folder on the way, which has no end.

        Raises
        ------
        ValueError
            If it is not followed, with the reason.
        """
        place = os.path.join(self.folders[-1], name)
        if is_link:
            target = os.path.realpath(place)
            if target in self.folders:
                return None
            if place in self.followed:
                raise ValueError("a link that was followed before, by another way: what it leads to is there already")
            self.followed.add(place)
            place = target
        if len(self.folders) > _MAX_DEPTH:
            raise ValueError(f"a folder more than {_MAX_DEPTH} folders deep")
        return _Way((*self.folders, place), self.followed)


def _walk(folder: str, prefix: str, listing: Listing, way: _Way) -> None:
    for entry in _add_files(folder, prefix, listing):
        _below(entry, prefix, listing, way)


def _below(entry: os.DirEntry[str], prefix: str, listing: Listing, way: _Way) -> None:
    if listing.full:
        listing.complete = False
        return
    name = prefix + entry.name
    try:
        further = way.down(entry.name, entry.is_symlink())
    except ValueError as error:
        listing.failures.append(Failure(f"{safe_key(name)}/", Stage.LIST, str(error)))
        return
    if further is not None:
        _walk(entry.path, f"{name}/", listing, further)


def _add_files(folder: str, prefix: str, listing: Listing) -> list[os.DirEntry[str]]:
    """Add the files directly in a folder; returns its subfolders."""
    subfolders: list[os.DirEntry[str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            try:
                name.encode()
            except UnicodeEncodeError:
                key = safe_key(os.fsencode(name).decode("ascii", "backslashreplace"))
                listing.failures.append(Failure(key, Stage.LIST, "the file's name is not UTF-8"))
                continue
            if entry.is_dir():
                subfolders.append(entry)
                continue
            try:
                found = entry.stat()
            except OSError:
                listing.add(name, -1)  # a broken link: reading it will say so
                continue
            if stat.S_ISREG(found.st_mode):
                listing.add(name, found.st_size)
            else:
                listing.failures.append(Failure(safe_key(name), Stage.LIST, _NOT_REGULAR))
    return sorted(subfolders, key=lambda entry: entry.name)  # so that the same link is always the first
