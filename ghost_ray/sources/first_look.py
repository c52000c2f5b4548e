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
    failures: list[Failure] = field(default_factory=list)
    class_names: list[str] | None = None
    digests: dict[str, str] = field(default_factory=dict)
    images: int = 0
    weight: float = 0.0

    def add(self, part: Part, scan: Scan, uri: str) -> None:
        self.tables.append(scan.items)
        self.failures += scan.failures
        self.class_names = common_names(self.class_names, scan.class_names, uri)
        self.images += scan.items.num_rows
        self.weight += scan.share * _weight(part)


def first_look(contents: Contents, uri: str) -> Seen:
    """List parts from the first on, until everything is seen or enough is.

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
    seen = _seen(look, source.parts, source.uri, True)
    return replace(source, seen=seen, fingerprint=source.fingerprint or seen.fingerprint)


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


def _seen(look: _Look, parts: Sequence[Part], uri: str, complete: bool) -> Seen:
    items = pa.concat_tables([ITEMS.empty_table(), *look.tables]).unify_dictionaries().combine_chunks()
    require_distinct(items["key"].combine_chunks(), uri)
    total = sum(map(_weight, parts))
    images = look.images if complete else round(look.images * total / max(look.weight, 1e-9))
    fingerprint = parts_fingerprint(look.digests) if complete else None
    return Seen(items, look.failures, look.class_names, complete, images, fingerprint)


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
