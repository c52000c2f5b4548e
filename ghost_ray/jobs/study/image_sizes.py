"""How many bytes a set of images has, without reading one."""

from __future__ import annotations

import posixpath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ghost_ray.files import reaching
from ghost_ray.sources import Source, retried

_ASKED = 1000  # files of an image list whose size is asked for; more of them give no better estimate


def bytes_of(source: Source, items: pa.Table) -> tuple[int | None, bool]:
    """The bytes of these images, and whether that is an estimate; None where only reading tells.

    Listings of folders and shards say how large each image is. A list names files, and a sample of them is asked for:
    on an object store each costs a request.
    """
    sizes = np.asarray(items["size"])
    if (sizes >= 0).all():
        return int(sizes.sum()), False
    if pc.count_distinct(items["file"]).as_py() < items.num_rows:
        return None, False  # rows of a shard
    chosen = np.linspace(0, items.num_rows - 1, min(_ASKED, items.num_rows)).astype(np.int64)
    base, filesystem = source.reader.base, source.reader.filesystem
    paths = [posixpath.join(base, name) for name in items["file"].take(pa.array(chosen)).to_pylist()]
    with reaching(source.uri, "data"):
        found = retried(filesystem, lambda: filesystem.get_file_info(paths))
    there = [info.size for info in found if info.is_file]
    if not there:
        return None, False
    return round(np.mean(there) * items.num_rows), len(there) < items.num_rows
