"""The common shape of every source: parts that are listed one at a time, and a reader that turns rows into bytes."""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ghost_ray.errors import InputError, one_line
from ghost_ray.sources.retry import SteadyFile

# What Pillow opens and people keep classifiers' images in. Compared in lower case.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")

# Of one encoded image. A picture of the most pixels that are decoded is smaller in every format that packs its pixels;
# a worker holds several images at a time, some of them in two or three copies.
MAX_ENCODED_BYTES = 128 << 20

_LINES_AT_A_TIME = 1 << 16  # a listing of millions is not turned into Python strings at once

ITEMS = pa.schema(
    [
        ("key", pa.string()),  # names the image for good: relative, '/', the same on every machine
        ("file", pa.string()),  # relative to `base`: the image itself, or the shard it is in
        ("start", pa.int64()),  # in a shard: byte offset (tar) or row (Parquet) of the image; 0 in a file
        ("size", pa.int64()),  # bytes; −1 if unknown before reading
        ("label", pa.dictionary(pa.int32(), pa.string())),  # as the source says it, null where it says nothing
    ]
)


NOT_REGULAR = "is not a regular file"
REST = 1.0


class Failure(NamedTuple):
    """One image, or the unreadable rest of a shard, that is not in the store, and why."""

    key: str
    stage: str  # a Stage
    error: str  # one line
    share: float = 0.0  # of the part that is lost, about; `REST`: all that was not listed before; 0: a single image
    images: int = 1  # how many that are

    def counted(self, part: Part, listed: int) -> Failure:
        """The same with its number of images, after so many of the part were `listed`."""
        lost = part.images - listed if self.share == REST else round(part.images * self.share)
        if lost <= 1:
            return self
        return self._replace(error=f"{self.error}; about {lost:,} images", images=lost)


class Image(NamedTuple):
    """One image's encoded bytes, or the reason why they could not be read."""

    key: str
    data: bytes | None
    error: str | None


class Part(NamedTuple):
    """A piece of a source that a worker opens by itself: a shard, a class folder, a slice of an image list."""

    name: str  # unique in the source
    file: str  # relative to the reader's `base`: the folder, the shard or the list
    start: int = 0  # where in the file it begins, and
    stop: int = 0  # where it ends; what that means is the format's own
    size: int = 0  # bytes that listing it may have to read; 0 where that takes one request
    images: int = 0  # in it, as the first look at the source counted or estimated them


@dataclass(frozen=True)
class Scan:
    """Some images of a part, in order, and the damage found."""

    items: pa.Table  # columns of `ITEMS`
    failures: list[Failure] = field(default_factory=list)
    class_names: list[str] | None = None  # where the part says what its numbers mean
    images: list[Image] | None = None  # of the rows of `items`, where they were read along with the listing
    share: float = 1.0  # how much of the part this is, about


class Reader(Protocol):
    """Lists parts and turns rows of `items` into bytes; small and picklable, so that it can travel to workers."""

    @property
    def filesystem(self) -> fs.FileSystem:
        """Where the files of the items are."""

    @property
    def base(self) -> str:
        """The folder on it that they are relative to."""

    def scan(self, part: Part, bodies: bool = False) -> Iterator[Scan]:
        """The images of a part, in order, a bounded number at a time.

        The same part always gives the same rows. With `bodies`, a format whose images are adjacent in a shard reads
        them in the same pass; a label that is far from its image may then be missing.
        """
        ...

    def read(self, items: pa.Table) -> Iterator[Image]:
        """One :class:`Image` for each row, in order; what cannot be read becomes its `error`."""
        ...


@dataclass(frozen=True)
class Seen:
    """What a first look at the parts found: everything, where there is little."""

    items: pa.Table  # of the parts that were listed, or of the beginning of the first one
    failures: list[Failure]
    class_names: list[str] | None
    complete: bool  # whether these are all the images there are
    images: int  # that were listed, or where the look is not complete an estimate of all
    lost: int  # that are in damaged parts of what was listed, about
    fingerprint: str | None  # of the parts' listings, where it is complete


@dataclass(frozen=True)
class Source:
    """Where images are. Made by :func:`ghost_ray.sources.open_source`; no image has been read.

    The parts are sorted, and each gives its images in a fixed order. No image is in two parts.
    """

    uri: str
    kind: str  # the name of its format
    parts: list[Part]
    reader: Reader
    seen: Seen
    fingerprint: str | None  # SHA-256 of names and sizes, equal on every machine; None if it needs a full listing
    class_names: list[str] | None = None  # folders: the subfolders, sorted; Parquet: from its metadata
    keys_may_repeat: bool = False  # from part to part


def read_bytes(filesystem: fs.FileSystem, path: str) -> bytes:
    """The content of a file; OSError if it is not there, damaged, or larger than an image may be.

    Another error is raised if the store does not answer.
    """
    if isinstance(filesystem, fs.LocalFileSystem) and not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(NOT_REGULAR)  # opening a FIFO waits for whoever writes to it
    with SteadyFile(filesystem, path) as file:
        if file.length > MAX_ENCODED_BYTES:
            raise OSError(too_large(file.length))
        return file.read()


def too_large(size: int) -> str:
    """Why an image of so many bytes is not read."""
    return f"is {size:,} bytes long, more than the {MAX_ENCODED_BYTES:,} that an image may have"


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


def read_error(error: BaseException) -> str:
    """Why a file could not be read; for common reasons, without the machine's own paths."""
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, PermissionError):
        return "permission denied"
    return one_line(error)


def make_items(
    keys: Sequence[str] | pa.Array,
    files: Sequence[str] | pa.Array,
    labels: Sequence[str | None] | pa.Array,
    sizes: Sequence[int] | None = None,
    starts: Sequence[int] | None = None,
) -> pa.Table:
    """A table with the columns of :data:`ITEMS`."""
    count = len(keys)
    columns = [
        pa.array(keys, pa.string()) if not isinstance(keys, pa.Array) else keys,
        pa.array(files, pa.string()) if not isinstance(files, pa.Array) else files,
        pa.array(starts, pa.int64()) if starts is not None else pa.repeat(pa.scalar(0, pa.int64()), count),
        pa.array(sizes, pa.int64()) if sizes is not None else pa.repeat(pa.scalar(-1, pa.int64()), count),
        labels if isinstance(labels, pa.Array) else pa.array(labels, pa.string()).dictionary_encode(),
    ]
    return pa.Table.from_arrays(columns, schema=ITEMS)


def listing_fingerprint(names: pa.Array, facts: pa.Array) -> str:
    """SHA-256 over the sorted lines ``name TAB fact``; a fact is a size or a digest."""
    lines = pc.binary_join_element_wise(names, pc.fill_null(facts.cast(pa.string()), ""), "\t", null_handling="replace")
    digest = hashlib.sha256()
    _digest_lines(digest, lines.take(pc.sort_indices(lines)))
    return digest.hexdigest()


class ListingDigest:
    """SHA-256 over what a listing says of each image, in its order; of no image it is the empty string."""

    def __init__(self) -> None:
        self._digest, self._empty = hashlib.sha256(), True

    def add(self, items: pa.Table) -> None:
        """The next rows of the listing."""
        columns = [items[name].cast(pa.string()) for name in ("key", "start", "size")]
        # Where images are read along with the listing, labels may be missing in it; there the sizes are known.
        label = pc.fill_null(items["label"].cast(pa.string()), "")
        columns.append(pc.if_else(pc.less(items["size"], 0), label, ""))
        _digest_lines(self._digest, pc.binary_join_element_wise(*columns, "\t"))
        self._empty &= not items.num_rows

    def value(self) -> str:
        return "" if self._empty else self._digest.hexdigest()


def _digest_lines(digest: Any, lines: pa.Array | pa.ChunkedArray) -> None:
    for start in range(0, len(lines), _LINES_AT_A_TIME):
        digest.update("".join(f"{line}\n" for line in lines.slice(start, _LINES_AT_A_TIME).to_pylist()).encode())


def require_distinct(keys: pa.Array | pa.ChunkedArray, uri: str) -> None:
    """Refuse a source in which two images have the same key: they could not both be in a store."""
    if pc.count_distinct(keys).as_py() == len(keys):
        return
    counts = pc.value_counts(keys)
    raise refuse_repeated(next(pair["values"] for pair in counts.to_pylist() if pair["counts"] > 1), uri)


def refuse_repeated(key: str, uri: str) -> InputError:
    """The error about a key that two images have."""
    return InputError("data", uri, f"names {key!r} more than once", "each image may be there once")


def safe_key(name: str) -> str:
    """A name as a key: relative, without '..', and without characters that break lines."""
    inside = posixpath.normpath("/" + name).lstrip("/")
    return inside if inside.isprintable() else "".join(c if c.isprintable() else f"%{ord(c):02X}" for c in inside)


def is_image(name: str) -> bool:
    """Whether a file is taken for an image by its name; hidden ones (`._x.jpg`, `.cache/x.jpg`) are not."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".") and "/." not in name
