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
from ghost_ray.sources.source import Failure, safe_key

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
            _below(entry, "", listing, {os.path.realpath(folder)})
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
        place, seen = os.path.join(base, subfolder), {os.path.realpath(base)}
        _walk(place, f"{subfolder}/", listing, seen | {os.path.realpath(place)} if os.path.islink(place) else seen)


def _walk(folder: str, prefix: str, listing: Listing, seen: set[str]) -> None:
    for entry in _here(folder, prefix, listing):
        _below(entry, prefix, listing, seen)


def _below(entry: os.DirEntry[str], prefix: str, listing: Listing, seen: set[str]) -> None:
    if listing.full:
        listing.complete = False
        return
    if entry.is_symlink():
        target = os.path.realpath(entry.path)
        if target in seen:  # a loop of links has no end
            return
        seen = seen | {target}
    _walk(entry.path, f"{prefix}{entry.name}/", listing, seen)


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
                listing.failures.append(Failure(safe_key(name), Stage.LIST, "is not a regular file"))
    return subfolders


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
