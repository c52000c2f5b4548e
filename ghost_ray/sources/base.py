"""The common shape of every source: one table of images, and a reader that turns its rows into bytes."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ghost_ray.errors import InputError, one_line
from ghost_ray.sources.retry import retried

# What Pillow opens and people keep classifiers' images in. Compared in lower case.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")

_LINES_AT_A_TIME = 1 << 16  # a listing of millions is not turned into Python strings at once

ITEMS = pa.schema(
    [
        ("key", pa.string()),  # names the image for good: relative, '/', the same on every machine
        ("file", pa.string()),  # relative to `base`: the image itself, or the shard it is in
        ("start", pa.int64()),  # in a shard: byte offset (tar) or row (Parquet) of the image; 0 in a file
        ("size", pa.int64()),  # bytes; −1 where only reading tells
        ("label", pa.dictionary(pa.int32(), pa.string())),  # as the source says it, null where it says nothing
    ]
)


class Failure(NamedTuple):
    """One image, or the unreadable rest of a shard, that is not in the store, and why."""

    key: str
    stage: str  # list, read, decode, embed
    error: str  # one line


class Image(NamedTuple):
    """One image's encoded bytes, or the reason why they could not be read."""

    key: str
    data: bytes | None
    error: str | None


class Reader(Protocol):
    """Turns rows of `items` into bytes; small and picklable, so that it can travel to workers."""

    @property
    def filesystem(self) -> fs.FileSystem:
        """Where the files of the items are."""

    @property
    def base(self) -> str:
        """The folder on it that they are relative to."""

    def read(self, items: pa.Table) -> Iterator[Image]:
        """One :class:`Image` for each row, in order; what cannot be read becomes its `error`."""
        ...


@dataclass(frozen=True)
class Source:
    """What images there are. Made by :func:`ghost_ray.sources.open_source`.

    `items` has one row an image (columns of :data:`ITEMS`), sorted by file and place in the file, whatever the
    kind; no image has been read.
    """

    uri: str
    kind: str  # folder, flat, webdataset, parquet or list
    items: pa.Table
    reader: Reader
    fingerprint: str  # SHA-256 of the sorted listing, the same on every machine
    class_names: list[str] | None = None  # folders: the subfolders, sorted; Parquet: from its metadata
    failures: list[Failure] = field(default_factory=list)  # found while listing
    ignored: int = 0  # files that are no images by their name

    @property
    def label_values(self) -> list[str]:
        """The distinct raw labels, sorted."""
        return sorted(pc.unique(self.items["label"].cast(pa.string())).drop_null().to_pylist())


def read_bytes(filesystem: fs.FileSystem, path: str) -> bytes:
    """A whole file; OSError where that does not work."""

    def read() -> bytes:
        with filesystem.open_input_file(path) as handle:
            return bytes(handle.read())

    return retried(filesystem, read)


@dataclass(frozen=True)
class FileReader:
    """Every item is a file of its own."""

    filesystem: fs.FileSystem
    base: str

    def read(self, items: pa.Table) -> Iterator[Image]:
        for key, file in zip(items["key"].to_pylist(), items["file"].to_pylist(), strict=True):
            try:
                yield Image(key, read_bytes(self.filesystem, posixpath.join(self.base, file)), None)
            except (OSError, pa.ArrowException) as error:
                yield Image(key, None, read_error(error))


def read_error(error: BaseException) -> str:
    """Why a file could not be read, without the machine's own paths where the reason is an ordinary one."""
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
    """SHA-256 over the sorted lines ``name TAB fact``; a fact is a size or a label."""
    lines = pc.binary_join_element_wise(names, pc.fill_null(facts.cast(pa.string()), ""), "\t", null_handling="replace")
    lines = lines.take(pc.sort_indices(lines))
    digest = hashlib.sha256()
    for start in range(0, len(lines), _LINES_AT_A_TIME):
        digest.update("".join(f"{line}\n" for line in lines.slice(start, _LINES_AT_A_TIME).to_pylist()).encode())
    return digest.hexdigest()


def require_distinct(keys: pa.Array, uri: str) -> None:
    """Refuse a source in which two images have one key: they could not both be in a store."""
    if pc.count_distinct(keys).as_py() == len(keys):
        return
    counts = pc.value_counts(keys)
    repeated = next(pair["values"] for pair in counts.to_pylist() if pair["counts"] > 1)
    raise InputError("--data", uri, f"names {repeated!r} more than once", "each image may be there once")


def safe_key(name: str) -> str:
    """A name as a key: relative, without '..', and without characters that break lines."""
    inside = posixpath.normpath("/" + name).lstrip("/")
    return inside if inside.isprintable() else "".join(c if c.isprintable() else f"%{ord(c):02X}" for c in inside)


def is_image(name: str) -> bool:
    """Whether a file is taken for an image by its name; hidden ones (`._x.jpg`, `.cache/x.jpg`) are not."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".") and "/." not in name
