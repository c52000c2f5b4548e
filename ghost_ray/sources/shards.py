"""What tar and Parquet shards have in common: many files, each scanned for the images in it."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ghost_ray.errors import InputError
from ghost_ray.sources.base import ITEMS, Failure, Reader, Source, listing_fingerprint, require_distinct
from ghost_ray.sources.listing import Listing

_SCANNERS = 16  # shards scanned at a time: it is waiting for an object store that is shared out, not work


@dataclass(frozen=True)
class Scan:
    """The images of one shard, and what was found broken on the way."""

    items: pa.Table
    failures: list[Failure]
    class_names: list[str] | None = None


Scanner = Callable[[fs.FileSystem, str, str], Scan]


def shard_source(
    kind: str,
    uri: str,
    filesystem: fs.FileSystem,
    base: str,
    listing: Listing,
    suffix: str,
    scan: Scanner,
    reader: Reader,
) -> Source:
    """One source of all shards in `listing`, in sorted order."""
    files = sorted(name for name in listing.names if is_shard(name, suffix))
    with ThreadPoolExecutor(_SCANNERS) as pool:
        scans = list(pool.map(lambda file: scan(filesystem, base, file), files))
    items = pa.concat_tables([ITEMS.empty_table(), *(scan.items for scan in scans)]).unify_dictionaries()
    items = items.combine_chunks()
    require_distinct(items["key"].combine_chunks(), uri)
    named = [scan.class_names for scan in scans if scan.class_names is not None]
    if any(names != named[0] for names in named):
        raise InputError("--data", uri, "its shards name different classes", "read them one data set at a time")
    return Source(
        uri=uri,
        kind=kind,
        items=items,
        reader=reader,
        fingerprint=shard_fingerprint(listing, suffix),
        class_names=named[0] if named else None,
        failures=[failure for scan in scans for failure in scan.failures],
        ignored=len(listing.names) - len(files),
    )


def shard_fingerprint(listing: Listing, suffix: str) -> str:
    """The fingerprint of a source of shards, from their names and sizes; none of them is opened."""
    sizes = {name: size for name, size in zip(listing.names, listing.sizes, strict=True) if is_shard(name, suffix)}
    files = sorted(sizes)
    return listing_fingerprint(pa.array(files, pa.string()), pa.array([sizes[file] for file in files], pa.int64()))


def is_shard(name: str, suffix: str) -> bool:
    """Whether a file is one of the shards; hidden files are not."""
    return name.lower().endswith(suffix) and not posixpath.basename(name).startswith(".")


def runs_of_one_file(items: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Consecutive rows that lie in the same file, as ``(file, rows)``."""
    if items.num_rows == 0:
        return
    files = items["file"].combine_chunks()
    changes = np.flatnonzero(np.asarray(pc.not_equal(files[1:], files[:-1]))) + 1
    bounds = [0, *changes.tolist(), items.num_rows]
    for start, end in itertools.pairwise(bounds):
        yield files[start].as_py(), items.slice(start, end - start)
