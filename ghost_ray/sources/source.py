"""What a source is: shards that are listed one at a time, a reader that turns rows into bytes, and a preview of it all.

The preview covers everything if there is little, else just enough to find early errors and to estimate. How far it goes
depends on the source alone, never on time, so that two runs find the same.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ghost_ray.errors import InputError

# What Pillow opens and people keep classifiers' images in. Compared in lower case.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
LISTERS = 16  # requests for listings at a time
MAX_IMAGES, MAX_SHARDS, MAX_BYTES = 20_000, 1024, 64 << 20  # of a source that is listed completely for its preview
REST = 1.0
_LINES_AT_A_TIME = 1 << 16  # a listing of millions is not turned into Python strings at once

ITEMS = pa.schema(
    [
        ("key", pa.string()),  # names the image for good: relative, '/', the same on every machine
        ("file", pa.string()),  # relative to `base`: the image itself, or the file it is in
        ("start", pa.int64()),  # byte offset (tar) or row (Parquet) of the image; 0 if it is a file
        ("size", pa.int64()),  # bytes; −1 if unknown before reading
        ("label", pa.dictionary(pa.int32(), pa.string())),  # as the source says it, null where it says nothing
    ]
)


class Failure(NamedTuple):
    """One image, or the unreadable rest of a shard, that is not in the store, and why."""

    key: str
    stage: str  # a Stage
    error: str  # one line
    share: float = 0.0  # of the shard that is lost, about; `REST`: all that was not listed before; 0: a single image
    images: int = 1  # how many that are

    def counted(self, shard: Shard, listed: int) -> Failure:
        """The same with its number of images, after so many of the shard were `listed`."""
        lost = shard.images - listed if self.share == REST else round(shard.images * self.share)
        if lost <= 1:
            return self
        return self._replace(error=f"{self.error}; about {lost:,} images", images=lost)


class Image(NamedTuple):
    """One image's encoded bytes, or the reason why they could not be read."""

    key: str
    data: bytes | None
    error: str | None


class Shard(NamedTuple):
    """What one task lists: a tar, a class folder, a slice of an image list, some row groups of a Parquet file."""

    name: str  # unique in the source
    file: str  # relative to the reader's `base`: the folder, the tar, the Parquet file or the list
    start: int = 0  # where in the file it begins, and
    stop: int = 0  # where it ends; what that means is the format's own
    size: int = 0  # bytes that listing it may have to read; 0 where that takes one request
    images: int = 0  # in it, as the preview of the source counted or estimated them


@dataclass(frozen=True)
class Scan:
    """Some images of a shard, in order, and the damage found."""

    items: pa.Table  # columns of `ITEMS`
    failures: list[Failure] = field(default_factory=list)
    class_names: list[str] | None = None  # where the shard says what its numbers mean
    images: list[Image] | None = None  # of the rows of `items`, where they were read along with the listing
    share: float = 1.0  # how much of the shard this is, about


class Reader(Protocol):
    """Lists shards and turns rows of `items` into bytes; small and picklable, so that it can travel to workers."""

    @property
    def filesystem(self) -> fs.FileSystem:
        """Where the files of the items are."""

    @property
    def base(self) -> str:
        """The folder on it that they are relative to."""

    def scan(self, shard: Shard, bodies: bool = False) -> Iterator[Scan]:
        """The images of a shard, in order, a bounded number at a time.

        The same shard always gives the same rows. With `bodies`, a format whose images are adjacent in a file reads
        them in the same pass; a label that is far from its image may then be missing.
        """
        ...

    def read(self, items: pa.Table) -> Iterator[Image]:
        """One :class:`Image` for each row, in order; what cannot be read becomes its `error`."""
        ...


@dataclass(frozen=True)
class Preview:
    """What was found in the first shards: everything, where there is little."""

    items: pa.Table  # of the shards that were listed, or of the beginning of the first one
    failures: list[Failure]
    class_names: list[str] | None
    complete: bool  # whether these are all the images there are
    images: int  # that were listed, or where the preview is not complete an estimate of all
    lost: int  # that are in damaged shards among those listed, about
    fingerprint: str | None  # of the shards' listings, where it is complete


@dataclass(frozen=True)
class Source:
    """Where images are. Made by :func:`ghost_ray.sources.open_source`; no image has been read.

    The shards are sorted, and each gives its images in a fixed order. No image is in two shards.
    """

    uri: str
    kind: str  # the name of its format
    shards: list[Shard]
    reader: Reader
    preview: Preview
    fingerprint: str | None  # SHA-256 of names and sizes, equal on every machine; None if it needs a full listing
    class_names: list[str] | None = None  # folders: the subfolders, sorted; Parquet: from its metadata
    keys_may_repeat: bool = False  # from shard to shard


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


def is_image(name: str) -> bool:
    """Whether a file is taken for an image by its name; hidden ones (`._x.jpg`, `.cache/x.jpg`) are not."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".") and "/." not in name


def safe_key(name: str) -> str:
    """A name as a key: relative, without '..', and without characters that break lines."""
    inside = posixpath.normpath("/" + name).lstrip("/")
    return inside if inside.isprintable() else "".join(c if c.isprintable() else f"%{ord(c):02X}" for c in inside)


def require_distinct(keys: pa.Array | pa.ChunkedArray, uri: str) -> None:
    """Refuse a source in which two images have the same key: they could not both be in a store."""
    if pc.count_distinct(keys).as_py() == len(keys):
        return
    counts = pc.value_counts(keys)
    raise refuse_repeated(next(pair["values"] for pair in counts.to_pylist() if pair["counts"] > 1), uri)


def refuse_repeated(key: str, uri: str) -> InputError:
    """The error about a key that two images have."""
    return InputError("data", uri, f"names {key!r} more than once", "each image may be there once")


def common_names(before: list[str] | None, now: list[str] | None, uri: str) -> list[str] | None:
    """The class names that all shards which have any agree on."""
    if before is not None and now is not None and before != now:
        raise InputError("data", uri, "its shards name different classes", "read them one data set at a time")
    return before if now is None else now


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


def shard_digest(scans: Iterable[Scan]) -> str:
    """What the listing of a shard was; the empty string where there is no image in it."""
    digest = ListingDigest()
    for scan in scans:
        digest.add(scan.items)
    return digest.value()


def shards_fingerprint(digests: dict[str, str]) -> str:
    """One fingerprint of the listings of all shards, by their names; empty shards are ignored."""
    held = {name: digest for name, digest in digests.items() if digest}
    return listing_fingerprint(pa.array(list(held), pa.string()), pa.array(list(held.values()), pa.string()))


def list_shards(reader: Reader, shards: Sequence[Shard]) -> Iterator[tuple[Shard, list[Scan]]]:
    """Every shard with what is in it, in order, listed in parallel, with a growing number at a time."""
    with ThreadPoolExecutor(LISTERS) as pool:
        first, step = 0, 1
        while first < len(shards):
            some = shards[first : first + step]
            yield from zip(some, pool.map(lambda shard: list(reader.scan(shard)), some), strict=True)
            first, step = first + step, min(2 * step, LISTERS)


@dataclass
class _Listed:
    """What was listed so far."""

    tables: list[pa.Table] = field(default_factory=list)
    failures: list[tuple[Shard, Failure, int]] = field(default_factory=list)  # and how many images came before it
    class_names: list[str] | None = None
    digests: dict[str, str] = field(default_factory=dict)  # of the shards that were listed to their end
    images: dict[str, int] = field(default_factory=dict)  # by shard
    read: dict[str, float] = field(default_factory=dict)  # how much of each shard that was

    def add(self, shard: Shard, scan: Scan, uri: str) -> None:
        self.tables.append(scan.items)
        self.class_names = common_names(self.class_names, scan.class_names, uri)
        self.images[shard.name] = listed = self.images.get(shard.name, 0) + scan.items.num_rows
        self.failures += [(shard, failure, listed) for failure in scan.failures]
        lost = sum(failure.share for failure in scan.failures if failure.share != REST)
        self.read[shard.name] = self.read.get(shard.name, 0.0) + max(0.0, scan.share - lost)

    def list_until(self, reader: Reader, shards: Sequence[Shard], uri: str, limit: int | None) -> int:
        """List whole shards until there are more than `limit` images; returns how many shards were listed."""
        for shard, scans in list_shards(reader, shards):
            for scan in scans:
                self.add(shard, scan, uri)
            self.digests[shard.name] = shard_digest(scans)
            if limit is not None and sum(self.images.values()) > limit:
                break
        return len(self.digests)

    def expected(self, shards: Sequence[Shard]) -> list[Shard]:
        """The shards with the images in them: counted where they were listed, else as dense as in those that were."""
        read = sum((shard.size or 1) * self.read.get(shard.name, 0.0) for shard in shards)
        density = sum(self.images.values()) / max(read, 1e-9)
        damaged = {shard.name for shard, _, _ in self.failures}
        found = []
        for shard in shards:
            images = self.images.get(shard.name, 0)
            if shard.name not in self.digests or shard.name in damaged:
                unread = max(0.0, 1.0 - self.read.get(shard.name, 0.0))
                images += round(density * (shard.size or 1) * unread)
            found.append(shard._replace(images=images))
        return found

    def preview(self, shards: Sequence[Shard], uri: str, complete: bool) -> tuple[Preview, list[Shard]]:
        items = pa.concat_tables([ITEMS.empty_table(), *self.tables]).unify_dictionaries().combine_chunks()
        require_distinct(items["key"].combine_chunks(), uri)
        expected = self.expected(shards)
        by_name = {shard.name: shard for shard in expected}
        failures = [failure.counted(by_name[shard.name], listed) for shard, failure, listed in self.failures]
        lost = sum(failure.images for failure in failures)
        estimate = sum(shard.images for shard in expected) - lost
        images = items.num_rows if complete else max(items.num_rows, estimate)
        fingerprint = shards_fingerprint(self.digests) if complete else None
        return Preview(items, failures, self.class_names, complete, images, lost, fingerprint), expected


def preview_shards(reader: Reader, shards: list[Shard], uri: str) -> tuple[Preview, list[Shard]]:
    """List shards from the first on, until all are listed or enough; returns the shards with their images, too.

    Raises
    ------
    InputError
        For what is wrong in the shards that were opened, such as a key that is there twice.
    """
    listed = _Listed()
    if sum(shard.size for shard in shards) <= MAX_BYTES:
        complete = listed.list_until(reader, shards[:MAX_SHARDS], uri, MAX_IMAGES) == len(shards)
        return listed.preview(shards, uri, complete)
    for shard in shards[:LISTERS]:  # until one gives an image, and only the beginning of it
        # As they are read later: a listing may read the whole shard before it returns anything.
        for scan in reader.scan(shard, bodies=True):
            listed.add(shard, scan, uri)
            if scan.items.num_rows:
                return listed.preview(shards, uri, False)
    return listed.preview(shards, uri, False)


def list_all(source: Source) -> Source:
    """The same source after a complete listing."""
    if source.preview.complete:
        return source
    listed = _Listed()
    listed.list_until(source.reader, source.shards, source.uri, None)
    preview, shards = listed.preview(source.shards, source.uri, True)
    return replace(source, preview=preview, shards=shards, fingerprint=source.fingerprint or preview.fingerprint)


def find_images(source: Source, keys: Sequence[str]) -> pa.Table:
    """The rows of the images with these keys; shards are listed until all are found."""
    wanted, found = pa.array(keys, pa.string()), [ITEMS.empty_table()]
    if source.preview.complete:
        return source.preview.items.filter(pc.is_in(source.preview.items["key"], wanted))
    for _, scans in list_shards(source.reader, source.shards):
        found += [scan.items.filter(pc.is_in(scan.items["key"], wanted)) for scan in scans]
        if sum(table.num_rows for table in found) == len(wanted):
            break
    return pa.concat_tables(found).unify_dictionaries()
