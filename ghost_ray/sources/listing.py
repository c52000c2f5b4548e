"""Every file below a folder, with its size, quickly and in columns."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import fs

from ghost_ray.errors import InputError, one_line
from ghost_ray.sources.base import Failure, safe_key
from ghost_ray.sources.retry import retried

_LISTERS = 16  # requests to an object store at a time


@dataclass
class Listing:
    """Names relative to the folder, unsorted; sizes beside them (−1: only reading will tell)."""

    names: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)  # the subfolders at the top, also those without files
    failures: list[Failure] = field(default_factory=list)

    def add(self, name: str, size: int) -> None:
        self.names.append(name)
        self.sizes.append(size)


def list_files(filesystem: fs.FileSystem, folder: str, uri: str) -> Listing:
    """All files below `folder`, however deep."""
    listing = Listing()
    try:
        if isinstance(filesystem, fs.LocalFileSystem):
            _walk(folder, "", listing, {os.path.realpath(folder)})
        else:
            _select(filesystem, folder, listing)
    except (OSError, pa.ArrowException) as error:
        raise InputError("--data", uri, f"cannot be listed: {one_line(error)}") from error
    return listing


def _walk(folder: str, prefix: str, listing: Listing, seen: set[str]) -> None:
    subfolders: list[os.DirEntry[str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            try:
                name.encode()
            except UnicodeEncodeError:
                key = safe_key(os.fsencode(name).decode("ascii", "backslashreplace"))
                listing.failures.append(Failure(key, "list", "the file's name is not UTF-8"))
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
                listing.failures.append(Failure(safe_key(name), "list", "is not a regular file"))
    if not prefix:
        listing.folders += [entry.name for entry in subfolders]
    for entry in subfolders:
        if entry.is_symlink():
            target = os.path.realpath(entry.path)
            if target in seen:  # a loop of links has no end
                continue
            _walk(entry.path, f"{prefix}{entry.name}/", listing, seen | {target})
        else:
            _walk(entry.path, f"{prefix}{entry.name}/", listing, seen)


def _select(filesystem: fs.FileSystem, folder: str, listing: Listing) -> None:
    """One request a subfolder, several at a time, each answer turned into columns before the next is held."""

    def below(path: str, recursive: bool) -> list[fs.FileInfo]:
        selector = fs.FileSelector(path, recursive=recursive)
        return retried(filesystem, lambda: list(filesystem.get_file_info(selector)))

    def add(infos: Iterable[fs.FileInfo]) -> None:
        for info in infos:
            if info.type == fs.FileType.File:
                size = info.size
                listing.add(info.path[len(folder) :].lstrip("/"), -1 if size is None else size)

    top = below(folder, recursive=False)
    add(top)
    subfolders = [info.path for info in top if info.type == fs.FileType.Directory]
    listing.folders += [path.rpartition("/")[2] for path in subfolders]
    with ThreadPoolExecutor(_LISTERS) as pool:
        for infos in pool.map(lambda path: below(path, recursive=True), subfolders):
            add(infos)
