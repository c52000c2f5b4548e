"""Images in folders: a class in each subfolder, or no classes at all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from ghost_ray.sources.base import FileReader, Source, is_image, listing_fingerprint, make_items, safe_key
from ghost_ray.sources.listing import Listing


def folder_source(uri: str, filesystem: fs.FileSystem, base: str, listing: Listing) -> Source:
    """Class = first subfolder, sorted as text; images beside the subfolders have no label."""
    return _source("folder", uri, filesystem, base, listing)


def flat_source(uri: str, filesystem: fs.FileSystem, base: str, listing: Listing) -> Source:
    """Every image below the folder, without labels."""
    return _source("flat", uri, filesystem, base, listing)


def _source(kind: str, uri: str, filesystem: fs.FileSystem, base: str, listing: Listing) -> Source:
    chosen = np.fromiter(map(is_image, listing.names), bool, len(listing.names))
    names = pa.array(listing.names, pa.string()).filter(pa.array(chosen))
    sizes = pa.array(np.array(listing.sizes, np.int64)[chosen])
    order = pc.sort_indices(names)
    names, sizes = names.take(order), sizes.take(order)
    labels = _first_folders(names) if kind == "folder" else pa.nulls(len(names), pa.string())
    return Source(
        uri=uri,
        kind=kind,
        items=make_items(_keys(names), names, labels.dictionary_encode(), sizes),
        reader=FileReader(filesystem, base),
        fingerprint=listing_fingerprint(names, sizes),
        class_names=_class_folders(listing) if kind == "folder" else None,
        failures=[failure for failure in listing.failures if is_image(failure.key)],
        ignored=int(np.count_nonzero(~chosen)),
    )


def _class_folders(listing: Listing) -> list[str]:
    # A class without an image keeps its place in the order.
    return sorted(name for name in listing.folders if not name.startswith("."))


def _first_folders(names: pa.Array) -> pa.Array:
    return pc.struct_field(pc.extract_regex(names, r"^(?P<folder>[^/]+)/"), "folder")


def _keys(names: pa.Array) -> pa.Array:
    # Almost always the names themselves, shared and not copied.
    odd = pc.match_substring_regex(names, r"[\x00-\x1f\x7f]")
    if not pc.any(odd, min_count=0).as_py():
        return names
    return pa.array([safe_key(name) for name in names.to_pylist()], pa.string())
