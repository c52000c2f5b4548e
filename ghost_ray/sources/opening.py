"""`open_source`: find the format of the images at a URI, and their parts."""

from __future__ import annotations

import posixpath

from pyarrow import fs

from ghost_ray.errors import InputError, redact
from ghost_ray.files import explained, resolve
from ghost_ray.sources.catalogue import ImageFormat, Place, format_setting, formats, image_format
from ghost_ray.sources.file_listing import Listing, list_files
from ghost_ray.sources.first_look import first_look, list_parts, part_digest, parts_fingerprint
from ghost_ray.sources.folders import FLAT
from ghost_ray.sources.retry import retried
from ghost_ray.sources.source import Source

_FILES_TO_TELL = 20_000  # listed to find out the format; a folder of millions shows it in its first ones
_COMPRESSED = (".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")


def open_source(uri: str, format: str | None = None, root: str | None = None) -> Source:
    """Find the parts of the images at `uri`, and have a first look at them; no image is read.

    Parameters
    ----------
    uri : str
        A folder or a single file, local or ``s3://``, ``gs://``.
    format : str, optional
        One of `formats`. Default: the one that recognises the file by its name, or the folder by the files in it.
    root : str, optional
        If the paths of an image list begin. Default: the folder the list is in.

    Raises
    ------
    InputError
        If there is nothing, nothing of that format, or more than one format.
    """
    entry, place = _look(uri, format, root)
    contents = entry.open(place)
    seen, parts = first_look(contents, place.uri)
    if seen.complete and not seen.images and not seen.failures:
        raise InputError("data", place.uri, f"holds no image (read as {entry.name})", format_setting())
    return Source(
        uri=place.uri,
        kind=entry.name,
        parts=parts,
        reader=contents.reader,
        seen=seen,
        fingerprint=contents.fingerprint or seen.fingerprint,
        class_names=contents.class_names or seen.class_names,
        keys_may_repeat=contents.keys_may_repeat,
    )


def fingerprint_of(uri: str, format: str | None = None, root: str | None = None) -> str:
    """The fingerprint that a store of these images carries, without looking into shards.

    Cheap enough for every scheduled run: folders and image lists are listed, and no more than a part of them is held.
    """
    entry, place = _look(uri, format, root)
    contents = entry.open(place)
    if contents.fingerprint is not None:
        return contents.fingerprint
    listed = list_parts(contents.reader, contents.parts)
    return parts_fingerprint({part.name: part_digest(scans) for part, scans in listed})


def _look(uri: str, format: str | None, root: str | None) -> tuple[ImageFormat, Place]:
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
        taking = ", ".join(each.name for each in formats() if each.takes_root)
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
        raise InputError(
            "data", uri, f"holds more than one format: {_names(found)}", f"say which with {format_setting()}"
        )
    if any(name.lower().endswith(_COMPRESSED) for name in listing.names):
        raise _compressed(uri)
    if listing.failures:
        return FLAT  # it reports what could not be listed
    problem = "is empty" if not listing.names else f"holds no image among {len(listing.names)} files"
    raise InputError("data", uri, problem, f"formats: {_names(formats())}")


def _names(entries: list[ImageFormat]) -> str:
    return ", ".join(entry.name for entry in entries)


def _compressed(uri: str) -> InputError:
    return InputError("data", uri, "is a compressed tar, which cannot be read in parts", "decompress it to .tar")
