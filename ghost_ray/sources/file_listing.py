"""The files below a folder, with their sizes, quickly and in columns."""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import fs

from ghost_ray.config.policies import Stage
from ghost_ray.errors import InputError, one_line
from ghost_ray.files import reaching
from ghost_ray.sources.retry import patiently, retried
from ghost_ray.sources.source import NOT_REGULAR, Failure, safe_key

_MAX_DEPTH = 100  # of folders in folders: a path has 4,096 bytes at most, and Python a thousand calls
LISTERS = 16  # requests to an object store at a time


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


def list_part(filesystem: fs.FileSystem, base: str, subfolder: str, uri: str) -> Listing:
    """The files below a subfolder of `base`; for the subfolder '', those of `base` that are in none."""

    def listing() -> Listing:
        found = Listing()
        _list_part(filesystem, base, subfolder, found)
        return found

    with _explained(uri):
        return patiently(filesystem, posixpath.join(base, subfolder), listing)


@contextlib.contextmanager
def _explained(uri: str) -> Iterator[None]:
    try:
        with reaching(uri, "data"):
            yield
    except pa.ArrowException as error:
        raise InputError("data", uri, f"cannot be listed: {one_line(error)}") from error


def _list_all(filesystem: fs.FileSystem, folder: str, listing: Listing) -> None:
    if isinstance(filesystem, fs.LocalFileSystem):
        subfolders = _here(folder, "", listing)
        listing.folders += [entry.name for entry in subfolders]
        for entry in subfolders:
            _below(entry, "", listing, _Way.at(folder))
        return
    subfolders_there = _select(filesystem, folder, folder, listing, recursive=False)
    listing.folders += subfolders_there
    with ThreadPoolExecutor(LISTERS) as pool:
        for first in range(0, len(subfolders_there), LISTERS):
            if listing.full:
                listing.complete = False
                return
            paths = [posixpath.join(folder, name) for name in subfolders_there[first : first + LISTERS]]
            for infos in pool.map(lambda path: _infos(filesystem, path, True), paths):
                _add(infos, folder, listing)


def _list_part(filesystem: fs.FileSystem, base: str, subfolder: str, listing: Listing) -> None:
    if not isinstance(filesystem, fs.LocalFileSystem):
        _select(filesystem, posixpath.join(base, subfolder), base, listing, recursive=bool(subfolder))
    elif not subfolder:
        _here(base, "", listing)
    else:
        place = os.path.join(base, subfolder)
        way = _Way.at(base).down(subfolder, os.path.islink(place))
        if way is not None:
            _walk(place, f"{subfolder}/", listing, way)


@dataclass(frozen=True)
class _Way:
    """The real folders from the top to where a walk is, and the links that it has followed so far in this part.

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
    for entry in _here(folder, prefix, listing):
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


def _here(folder: str, prefix: str, listing: Listing) -> list[os.DirEntry[str]]:
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
                listing.failures.append(Failure(safe_key(name), Stage.LIST, NOT_REGULAR))
    return sorted(subfolders, key=lambda entry: entry.name)  # so that the same link is always the first


def _select(filesystem: fs.FileSystem, folder: str, base: str, listing: Listing, *, recursive: bool) -> list[str]:
    """Add the files of one request; returns the names of the subfolders."""
    infos = _infos(filesystem, folder, recursive)
    _add(infos, base, listing)
    return [info.base_name for info in infos if info.type == fs.FileType.Directory]


def _infos(filesystem: fs.FileSystem, path: str, recursive: bool) -> list[fs.FileInfo]:
    selector = fs.FileSelector(path, recursive=recursive)
    return retried(filesystem, lambda: list(filesystem.get_file_info(selector)))


def _add(infos: Iterable[fs.FileInfo], base: str, listing: Listing) -> None:
    for info in infos:
        if info.type == fs.FileType.File:
            listing.add(info.path[len(base) :].lstrip("/"), -1 if info.size is None else info.size)
