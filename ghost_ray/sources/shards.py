"""Common code of tar and Parquet shards: a part is a whole file or a share of it."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ghost_ray.sources.catalogue import Contents, ImageFormat, Place
from ghost_ray.sources.source import Part, Reader, listing_fingerprint


def shard_format(
    name: str, text: str, suffix: str, reader: Callable[[fs.FileSystem, str], Reader], share_bytes: int | None = None
) -> ImageFormat:
    """The entry of a format whose images are in shards.

    Parameters
    ----------
    suffix : str
        Of the shards' names, in lower case.
    reader : callable
        Makes the reader of shards below a folder of a filesystem.
    share_bytes : int, optional
        Cut larger shards into several parts of about this size: part ``start`` of ``stop`` of the file. Default: a
        part is a whole shard, ``0`` of ``1``.
    """

    def is_shard(file: str) -> bool:
        """Whether a file is one of the shards; hidden files are not."""
        return file.lower().endswith(suffix) and not posixpath.basename(file).startswith(".")

    def parts_of(file: str, size: int) -> Iterator[Part]:
        count = 1 if share_bytes is None else max(1, -(-size // share_bytes))
        for number in range(count):
            own = f"{file}#{number}" if count > 1 else file
            yield Part(own, file, number, count, max(1, size // count))

    def open_shards(place: Place) -> Contents:
        listing = place.every_file()
        sizes = dict(sorted(pair for pair in zip(listing.names, listing.sizes, strict=True) if is_shard(pair[0])))
        names, bytes_ = pa.array(list(sizes), pa.string()), pa.array(list(sizes.values()), pa.int64())
        return Contents(
            parts=[part for file, size in sizes.items() for part in parts_of(file, size)],
            reader=reader(place.filesystem, place.base),
            fingerprint=listing_fingerprint(names, bytes_),
        )

    return ImageFormat(
        name=name,
        text=text,
        is_file=lambda file: file.lower().endswith(suffix),
        is_folder=lambda listing: any(map(is_shard, listing.names)),
        open=open_shards,
    )


def runs_of_one_file(items: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Consecutive rows in the same file, as ``(file, rows)``."""
    if items.num_rows == 0:
        return
    files = items["file"].combine_chunks()
    changes = np.flatnonzero(np.asarray(pc.not_equal(files[1:], files[:-1]))) + 1
    bounds = [0, *changes.tolist(), items.num_rows]
    for start, end in itertools.pairwise(bounds):
        yield files[start].as_py(), items.slice(start, end - start)
