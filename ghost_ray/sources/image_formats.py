"""Image formats by name, and `open_source`, which finds the one of the images at a URI.

One entry says how a format is recognised, split into shards and fingerprinted; only its entry knows the details.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ghost_ray.errors import InputError, nearest, redact
from ghost_ray.files import explained, resolve
from ghost_ray.plugins import load_plugins
from ghost_ray.sources.reading import Listing, list_files, retried
from ghost_ray.sources.source import (
    Reader,
    Shard,
    Source,
    list_shards,
    listing_fingerprint,
    preview_shards,
    shard_digest,
    shards_fingerprint,
)

_FILES_TO_TELL = 20_000  # listed to find out the format; a folder of millions shows it in its first ones
_COMPRESSED = (".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")


@dataclass(frozen=True)
class Place:
    """What is at a URI."""

    uri: str  # without credentials, for messages
    filesystem: fs.FileSystem
    path: str  # the folder or the single file
    base: str  # the folder, or the one that the file is in
    listing: Listing  # names relative to ``base``; of very many files only some, which tell the format
    root: str | None = None  # where the paths of an image list begin, if not in its own folder

    def every_file(self) -> Listing:
        """All files, for formats that have few and large ones."""
        return self.listing if self.listing.complete else list_files(self.filesystem, self.base, self.uri)


@dataclass(frozen=True)
class Contents:
    """The shards that a format finds at a place; none of them has been opened."""

    shards: list[Shard]
    reader: Reader
    class_names: list[str] | None = None  # where they are known without opening a shard
    fingerprint: str | None = None  # the same
    keys_may_repeat: bool = False  # from shard to shard; within a shard the reader sees to it


@dataclass(frozen=True)
class ImageFormat:
    """One image format."""

    name: str  # what `format` is set to, and the kind of data in a store's manifest
    text: str  # one line for help and documentation
    is_file: Callable[[str], bool]  # whether a single file is of this format, by its name
    is_folder: Callable[[Listing], bool]  # whether a folder holds files of this format
    open: Callable[[Place], Contents]  # finds the shards; InputError if they are not of this format
    takes_root: bool = False  # paths inside it may begin at `root`


_formats: dict[str, ImageFormat] = {}
_refused: dict[str, str] = {}  # plug-ins that cannot be used, and why


def register(entry: ImageFormat) -> ImageFormat:
    """Register a format: from now on it is detected, opened and shown in the help."""
    if entry.name in _formats:
        raise ValueError(f"two image formats are named {entry.name!r}")
    _formats[entry.name] = entry
    return entry


def unregister(name: str) -> None:
    """Forget a format."""
    del _formats[name]


def register_plugins() -> None:
    """Register the formats of installed packages."""

    def accept(name: str, entry: object) -> None:
        if not isinstance(entry, ImageFormat):
            raise ValueError(f"it is a {type(entry).__name__}, not a ghost_ray.sources.ImageFormat")
        if entry.name != name:
            raise ValueError(f"the entry point is named {name!r}, the format {entry.name!r}")
        if _formats.get(name) is not entry:  # its module may have registered it already
            register(entry)

    _refused.update(load_plugins("formats", accept))


def refused_plugins() -> dict[str, str]:
    """The formats of installed packages that cannot be used: name and reason."""
    return dict(_refused)


def formats() -> list[ImageFormat]:
    """All formats, in the order of registration."""
    return list(_formats.values())


def image_format(name: str) -> ImageFormat:
    """The format of a name; InputError with the nearest one where there is none."""
    if name in _refused:
        raise InputError("format", name, _refused[name], "fix or remove that package")
    if name not in _formats:
        raise InputError("format", name, f"is not one of {', '.join(_formats)}", nearest(name, _formats))
    return _formats[name]


def format_setting() -> str:
    """The setting with all its values, for messages: ```format=folder|flat```."""
    return f"`format={'|'.join(_formats)}`"


def container_format(
    name: str, text: str, suffix: str, reader: Callable[[fs.FileSystem, str], Reader], shard_bytes: int | None = None
) -> ImageFormat:
    """The entry of a format that keeps many images in one file.

    Parameters
    ----------
    suffix : str
        Of the files' names, in lower case.
    reader : callable
        Makes the reader of the files below a folder of a filesystem.
    shard_bytes : int, optional
        Cut larger files into several shards of about this size: shard ``start`` of ``stop`` of the file. Default: a
        shard is a whole file, ``0`` of ``1``.
    """

    def is_container(file: str) -> bool:
        return file.lower().endswith(suffix) and not posixpath.basename(file).startswith(".")

    def shards_of(file: str, size: int) -> Iterator[Shard]:
        count = 1 if shard_bytes is None else max(1, -(-size // shard_bytes))
        for number in range(count):
            own = f"{file}#{number}" if count > 1 else file
            yield Shard(own, file, number, count, max(1, size // count))

    def open_files(place: Place) -> Contents:
        listing = place.every_file()
        sizes = dict(sorted(pair for pair in zip(listing.names, listing.sizes, strict=True) if is_container(pair[0])))
        names, bytes_ = pa.array(list(sizes), pa.string()), pa.array(list(sizes.values()), pa.int64())
        return Contents(
            shards=[shard for file, size in sizes.items() for shard in shards_of(file, size)],
            reader=reader(place.filesystem, place.base),
            fingerprint=listing_fingerprint(names, bytes_),
        )

    return ImageFormat(
        name=name,
        text=text,
        is_file=lambda file: file.lower().endswith(suffix),
        is_folder=lambda listing: any(map(is_container, listing.names)),
        open=open_files,
    )


def runs_of_one_file(items: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Consecutive rows in the same file, as ``(file, rows)``."""
    if items.num_rows == 0:
        return
    files = items["file"].combine_chunks()
    changes = np.flatnonzero(np.asarray(pc.not_equal(files[1:], files[:-1]))) + 1
    for start, end in itertools.pairwise([0, *changes.tolist(), items.num_rows]):
        yield files[start].as_py(), items.slice(start, end - start)


def open_source(uri: str, format: str | None = None, root: str | None = None) -> Source:
    """Find the shards of the images at `uri`, and preview them; no image is decoded.

    Parameters
    ----------
    uri : str
        A folder or a single file, local or ``s3://``, ``gs://``.
    format : str, optional
        One of `formats`. Default: the one that recognises the file by its name, or the folder by the files in it.
    root : str, optional
        Where the paths of an image list begin. Default: the folder the list is in.

    Raises
    ------
    InputError
        If there is nothing, nothing of that format, or more than one format.
    """
    entry, place = _detect(uri, format, root)
    contents = entry.open(place)
    preview, shards = preview_shards(contents.reader, contents.shards, place.uri)
    if preview.complete and not preview.images and not preview.failures:
        raise InputError("data", place.uri, f"holds no image (read as {entry.name})", format_setting())
    return Source(
        uri=place.uri,
        kind=entry.name,
        shards=shards,
        reader=contents.reader,
        preview=preview,
        fingerprint=contents.fingerprint or preview.fingerprint,
        class_names=contents.class_names or preview.class_names,
        keys_may_repeat=contents.keys_may_repeat,
    )


def fingerprint_of(uri: str, format: str | None = None, root: str | None = None) -> str:
    """The fingerprint that a store of these images carries, without opening tars or Parquet files.

    Cheap enough for every scheduled run: folders and image lists are listed, and no more than some shards of them are
    held.
    """
    entry, place = _detect(uri, format, root)
    contents = entry.open(place)
    if contents.fingerprint is not None:
        return contents.fingerprint
    listed = list_shards(contents.reader, contents.shards)
    return shards_fingerprint({shard.name: shard_digest(scans) for shard, scans in listed})


def _detect(uri: str, format: str | None, root: str | None) -> tuple[ImageFormat, Place]:
    chosen = None if format is None else image_format(format)
    shown = redact(uri)
    filesystem, path = resolve(uri, "data")
    try:
        found = retried(filesystem, lambda: filesystem.get_file_info(path))
    except OSError as error:
        raise explained(error, "data", uri) from None
    if found.type == fs.FileType.NotFound:
        raise InputError("data", shown, "does not exist", "a folder of images, shards or an image list")
    if found.type == fs.FileType.Unknown:
        raise InputError(
            "data", shown, "is neither a folder nor a regular file", "a folder of images, shards or a list"
        )
    if found.type == fs.FileType.File:
        base, name = posixpath.split(path)
        listing = Listing([name], [found.size])
        entry = chosen or _format_of_file(name, shown)
    else:
        base = path
        listing = list_files(filesystem, base, shown, _FILES_TO_TELL)
        entry = chosen or _format_of_folder(listing, shown)
    if root is not None and not entry.takes_root:
        taking = _names([each for each in formats() if each.takes_root])
        raise InputError("root", root, f"is for the format {taking}; {shown} is read as {entry.name}", "leave it out")
    return entry, Place(shown, filesystem, path, base, listing, root)


def _format_of_file(name: str, uri: str) -> ImageFormat:
    found = [entry for entry in formats() if entry.is_file(name)]
    if len(found) == 1:
        return found[0]
    if not found and name.lower().endswith(_COMPRESSED):
        raise _compressed(uri)
    problem = f"may be any of {_names(found)}" if found else "is a file of unknown format"
    raise InputError("data", uri, problem, f"say which with {format_setting()}")


def _format_of_folder(listing: Listing, uri: str) -> ImageFormat:
    found = [entry for entry in formats() if entry.is_folder(listing)]
    if len(found) == 1:
        return found[0]
    if found:
        problem = f"holds more than one format: {_names(found)}"
        raise InputError("data", uri, problem, f"say which with {format_setting()}")
    if any(name.lower().endswith(_COMPRESSED) for name in listing.names):
        raise _compressed(uri)
    if listing.failures:
        return image_format("flat")  # it reports what could not be listed
    problem = "is empty" if not listing.names else f"holds no image among {len(listing.names)} files"
    raise InputError("data", uri, problem, f"formats: {_names(formats())}")


def _names(entries: list[ImageFormat]) -> str:
    return ", ".join(entry.name for entry in entries)


def _compressed(uri: str) -> InputError:
    return InputError("data", uri, "is a compressed tar, which cannot be read in parts", "decompress it to .tar")
