"""`open_source`: find out what kind of data a URI is, and list it."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from pyarrow import fs

from ghost_ray.errors import InputError, nearest, one_line
from ghost_ray.files import redact, resolve
from ghost_ray.sources import parquet, tars
from ghost_ray.sources.base import Source, is_image
from ghost_ray.sources.folders import flat_source, folder_source
from ghost_ray.sources.listing import Listing, list_files
from ghost_ray.sources.lists import list_source
from ghost_ray.sources.retry import retried
from ghost_ray.sources.shards import is_shard, shard_fingerprint, shard_source

_SHARDS = {"webdataset": ".tar", "parquet": ".parquet"}
FORMATS = ("folder", "flat", "webdataset", "parquet", "list")
_LIST_SUFFIXES = (".txt", ".lst", ".tsv")
_COMPRESSED = (".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")


def open_source(uri: str, format: str | None = None, root: str | None = None) -> Source:
    """List the images at `uri` without reading any of them.

    Parameters
    ----------
    uri : str
        A folder or a single file, local or ``s3://``, ``gs://``.
    format : {'folder', 'flat', 'webdataset', 'parquet', 'list'}, optional
        Detected where not given: a ``.tar`` or ``.parquet`` file, or a folder with such files and no images; a
        text file; a folder with images in subfolders, or without.
    root : str, optional
        Where the paths of an image list begin. Default: the folder the list is in.

    Raises
    ------
    InputError
        Where there is nothing, nothing of that kind, or more than one kind.
    """
    found = _look(uri, format, root)
    source = _open(found, root)
    if not source.items.num_rows and not source.failures:
        problem = f"holds no image (read as {found.kind})"
        raise InputError("--data", found.uri, problem, f"--format {'|'.join(FORMATS)}")
    return source


def fingerprint_of(uri: str, format: str | None = None, root: str | None = None) -> str:
    """The fingerprint `open_source` would give, without looking into shards: cheap enough for every scheduled run."""
    found = _look(uri, format, root)
    suffix = _SHARDS.get(found.kind)
    return shard_fingerprint(found.listing, suffix) if suffix else _open(found, root).fingerprint


@dataclass(frozen=True)
class _Found:
    """What lies at a URI, listed."""

    kind: str
    uri: str
    filesystem: fs.FileSystem
    base: str
    path: str
    listing: Listing


def _look(uri: str, format: str | None, root: str | None) -> _Found:
    if format is not None and format not in FORMATS:
        raise InputError("--format", format, f"is not one of {', '.join(FORMATS)}", nearest(format, FORMATS))
    shown = redact(uri)
    filesystem, path = resolve(uri, "--data")
    try:
        found = retried(filesystem, lambda: filesystem.get_file_info(path))
    except OSError as error:
        raise InputError("--data", shown, f"cannot be reached: {one_line(error)}") from error
    if found.type == fs.FileType.NotFound:
        raise InputError("--data", shown, "does not exist", "a folder of images, shards or an image list")
    if found.type == fs.FileType.File:
        base, name = posixpath.split(path)
        listing = Listing([name], [found.size])
        kind = format or _kind_of_file(name, shown)
    else:
        base = path
        listing = list_files(filesystem, base, shown)
        kind = format or _kind_of_folder(listing, shown)
    if root is not None and kind != "list":
        raise InputError("--root", root, f"is for image lists; {shown} is read as {kind}", "leave it out")
    return _Found(kind, shown, filesystem, base, path, listing)


def _open(found: _Found, root: str | None) -> Source:
    kind, uri, filesystem, base, listing = found.kind, found.uri, found.filesystem, found.base, found.listing
    if kind == "folder":
        return folder_source(uri, filesystem, base, listing)
    if kind == "flat":
        return flat_source(uri, filesystem, base, listing)
    if kind == "list":
        return list_source(uri, filesystem, found.path, root)
    suffix = _SHARDS[kind]
    if kind == "parquet":
        reader = parquet.ParquetReader(filesystem, base)
        return shard_source(kind, uri, filesystem, base, listing, suffix, parquet.scan, reader)
    return shard_source(kind, uri, filesystem, base, listing, suffix, tars.scan, tars.TarReader(filesystem, base))


def _kind_of_file(name: str, uri: str) -> str:
    lower = name.lower()
    if lower.endswith(".tar"):
        return "webdataset"
    if lower.endswith(".parquet"):
        return "parquet"
    if lower.endswith(_LIST_SUFFIXES):
        return "list"
    if lower.endswith(_COMPRESSED):
        raise _compressed(uri)
    raise InputError("--data", uri, "is a file of no kind known here", f"--format {'|'.join(FORMATS)}")


def _kind_of_folder(listing: Listing, uri: str) -> str:
    images = [name for name in listing.names if is_image(name)]
    kinds = {
        "images": bool(images),
        "webdataset": any(is_shard(name, ".tar") for name in listing.names),
        "parquet": any(is_shard(name, ".parquet") for name in listing.names),
    }
    present = [kind for kind, there in kinds.items() if there]
    if len(present) > 1:
        problem = f"holds more than one kind: {', '.join(present)}"
        raise InputError("--data", uri, problem, f"say which with --format {'|'.join(FORMATS)}")
    if not present:
        if any(name.lower().endswith(_COMPRESSED) for name in listing.names):
            raise _compressed(uri)
        if listing.failures:
            return "flat"
        problem = "is empty" if not listing.names else f"holds no image among {len(listing.names)} files"
        raise InputError("--data", uri, problem, "a folder of images, of .tar or of .parquet shards")
    if present != ["images"]:
        return present[0]
    return "folder" if any("/" in name for name in images) else "flat"


def _compressed(uri: str) -> InputError:
    return InputError("--data", uri, "is a compressed tar, which cannot be read in parts", "decompress it to .tar")
