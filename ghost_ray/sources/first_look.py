"""A first look at a source: all of it if it is small, else just enough to find early errors and to estimate.

How far the look goes depends on the source alone, never on time, so that two runs see the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from ghost_ray.errors import InputError
from ghost_ray.sources.catalogue import Contents
from ghost_ray.sources.file_listing import LISTERS
from ghost_ray.sources.source import (
    ITEMS,
    REST,
    Failure,
    ListingDigest,
    Part,
    Reader,
    Scan,
    Seen,
    Source,
    listing_fingerprint,
    require_distinct,
)

MAX_IMAGES = 20_000
MAX_PARTS = 1024
MAX_BYTES = 64 << 20


@dataclass
class _Look:
    """What was found so far."""

    tables: list[pa.Table] = field(default_factory=list)
    failures: list[tuple[Part, Failure, int]] = field(default_factory=list)  # and how many images were listed before it
    class_names: list[str] | None = None
    digests: dict[str, str] = field(default_factory=dict)
    listed: dict[str, int] = field(default_factory=dict)  # images of each part
    read: dict[str, float] = field(default_factory=dict)  # how much of each part that was

    def add(self, part: Part, scan: Scan, uri: str) -> None:
        self.tables.append(scan.items)
        self.class_names = common_names(self.class_names, scan.class_names, uri)
        self.listed[part.name] = listed = self.listed.get(part.name, 0) + scan.items.num_rows
        self.failures += [(part, failure, listed) for failure in scan.failures]
        lost = sum(failure.share for failure in scan.failures if failure.share != REST)
        self.read[part.name] = self.read.get(part.name, 0.0) + max(0.0, scan.share - lost)

    @property
    def images(self) -> int:
        return sum(self.listed.values())

    def expected(self, parts: Sequence[Part]) -> list[Part]:
        """The parts with the images in them: counted where they were listed, else as dense as in those that were."""
        read = sum(_weight(part) * self.read.get(part.name, 0.0) for part in parts)
        density = self.images / max(read, 1e-9)
        damaged = {part.name for part, _, _ in self.failures}
        found = []
        for part in parts:
            listed = self.listed.get(part.name, 0)
            unread = max(0.0, 1.0 - self.read.get(part.name, 0.0))
            complete = part.name in self.digests and part.name not in damaged
            found.append(part._replace(images=listed + (0 if complete else round(density * _weight(part) * unread))))
        return found


def first_look(contents: Contents, uri: str) -> tuple[Seen, list[Part]]:
    """List parts from the first on, until everything is seen or enough is; returns the parts with their images, too.

    Raises
    ------
    InputError
        For what is wrong in the parts that were opened, such as a key that is there twice.
    """
    look, parts = _Look(), contents.parts
    if sum(part.size for part in parts) > MAX_BYTES:
        complete = False
        _look_into_the_first(contents, look, uri)
    else:
        listed = _list_until(contents.reader, parts[:MAX_PARTS], look, uri, MAX_IMAGES)
        complete = listed == len(parts)
    return _seen(look, parts, uri, complete)


def look_at_all(source: Source) -> Source:
    """The same source after a complete listing."""
    if source.seen.complete:
        return source
    look = _Look()
    _list_until(source.reader, source.parts, look, source.uri, None)
    seen, parts = _seen(look, source.parts, source.uri, True)
    return replace(source, seen=seen, parts=parts, fingerprint=source.fingerprint or seen.fingerprint)


def find_images(source: Source, keys: Sequence[str]) -> pa.Table:
    """The rows of the images with these keys; parts are listed until all are found."""
    wanted, found = pa.array(keys, pa.string()), [ITEMS.empty_table()]
    if source.seen.complete:
        return source.seen.items.filter(pc.is_in(source.seen.items["key"], wanted))
    for _, scans in list_parts(source.reader, source.parts):
        found += [scan.items.filter(pc.is_in(scan.items["key"], wanted)) for scan in scans]
        if sum(table.num_rows for table in found) == len(wanted):
            break
    return pa.concat_tables(found).unify_dictionaries()


def _seen(look: _Look, parts: Sequence[Part], uri: str, complete: bool) -> tuple[Seen, list[Part]]:
    items = pa.concat_tables([ITEMS.empty_table(), *look.tables]).unify_dictionaries().combine_chunks()
    require_distinct(items["key"].combine_chunks(), uri)
    expected = look.expected(parts)
    by_name = {part.name: part for part in expected}
    failures = [failure.counted(by_name[part.name], listed) for part, failure, listed in look.failures]
    lost = sum(failure.images for failure in failures)
    images = look.images if complete else max(look.images, sum(part.images for part in expected) - lost)
    fingerprint = parts_fingerprint(look.digests) if complete else None
    return Seen(items, failures, look.class_names, complete, images, lost, fingerprint), expected


def _look_into_the_first(contents: Contents, look: _Look, uri: str) -> None:
    """Open parts until one gives an image, and only the beginning of it."""
    for part in contents.parts[:LISTERS]:
        # As they are read later: a listing may read the whole shard before it returns anything.
        for scan in contents.reader.scan(part, bodies=True):
            look.add(part, scan, uri)
            if look.images:
                return


def _list_until(reader: Reader, parts: Sequence[Part], look: _Look, uri: str, limit: int | None) -> int:
    """List whole parts until there are more than `limit` images; returns how many parts were listed."""
    listed = 0
    for part, scans in list_parts(reader, parts):
        for scan in scans:
            look.add(part, scan, uri)
        look.digests[part.name] = part_digest(scans)
        listed += 1
        if limit is not None and look.images > limit:
            break
    return listed


def list_parts(reader: Reader, parts: Sequence[Part]) -> Iterator[tuple[Part, list[Scan]]]:
    """Every part with what is in it, in order, listed in parallel, with a growing number at a time."""
    with ThreadPoolExecutor(LISTERS) as pool:
        first, step = 0, 1
        while first < len(parts):
            some = parts[first : first + step]
            yield from zip(some, pool.map(lambda part: list(reader.scan(part)), some), strict=True)
            first, step = first + step, min(2 * step, LISTERS)


def part_digest(scans: Iterable[Scan]) -> str:
    """What the listing of a part was; the empty string where there is no image in it."""
    digest = ListingDigest()
    for scan in scans:
        digest.add(scan.items)
    return digest.value()


def parts_fingerprint(digests: dict[str, str]) -> str:
    """One fingerprint of the listings of all parts, by their names; empty parts are ignored."""
    held = {name: digest for name, digest in digests.items() if digest}
    return listing_fingerprint(pa.array(list(held), pa.string()), pa.array(list(held.values()), pa.string()))


def common_names(before: list[str] | None, now: list[str] | None, uri: str) -> list[str] | None:
    """The class names that all parts which have any agree on."""
    if before is not None and now is not None and before != now:
        raise InputError("data", uri, "its shards name different classes", "read them one data set at a time")
    return before if now is None else now


def _weight(part: Part) -> int:
    return part.size or 1
