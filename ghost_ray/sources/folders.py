"""Images in folders: a class in each subfolder, or no classes at all. A shard is a subfolder with all below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ghost_ray.sources.image_formats import Contents, ImageFormat, Place, register
from ghost_ray.sources.reading import FileReader, Listing, list_subfolder
from ghost_ray.sources.source import Scan, Shard, is_image, make_items, require_distinct, safe_key


@dataclass(frozen=True)
class FolderReader(FileReader):
    """Shards are subfolders, and the folder itself without them."""

    labelled: bool
    uri: str

    def scan(self, shard: Shard, bodies: bool = False) -> Iterator[Scan]:
        listing = list_subfolder(self.filesystem, self.base, shard.file, self.uri)
        chosen = np.fromiter(map(is_image, listing.names), bool, len(listing.names))
        names = pa.array(listing.names, pa.string()).filter(pa.array(chosen))
        sizes = pa.array(np.array(listing.sizes, np.int64)[chosen])
        order = pc.sort_indices(names)
        names, sizes = names.take(order), sizes.take(order)
        label = shard.file if self.labelled and shard.file else None
        keys = _keys(names)
        require_distinct(keys, self.uri)
        yield Scan(
            make_items(keys, names, pa.repeat(pa.scalar(label, pa.string()), len(names)).dictionary_encode(), sizes),
            [failure for failure in listing.failures if _may_hold_images(failure.key)],
        )


def _may_hold_images(key: str) -> bool:
    """Whether it is an image by its name, or a folder that is not hidden."""
    return is_image(key) or (key.endswith("/") and not key.startswith(".") and "/." not in key)


def _keys(names: pa.Array) -> pa.Array:
    # Almost always the names themselves, shared and not copied.
    odd = pc.match_substring_regex(names, r"[\x00-\x1f\x7f]")
    if not pc.any(odd, min_count=0).as_py():
        return names
    return pa.array([safe_key(name) for name in names.to_pylist()], pa.string())


def _layout(listing: Listing) -> str | None:
    """The format that a folder of images has: ``flat`` where none of them is in a subfolder."""
    images = [name for name in listing.names if is_image(name)]
    return ("folder" if any("/" in name for name in images) else "flat") if images else None


def _contents(kind: str, place: Place) -> Contents:
    # A class without an image keeps its place in the order.
    folders = sorted(name for name in place.listing.folders if not name.startswith("."))
    return Contents(
        shards=[Shard(name, name) for name in ("", *folders)],
        reader=FolderReader(place.filesystem, place.base, kind == "folder", place.uri),
        class_names=folders if kind == "folder" else None,
    )


def _format(kind: str, text: str) -> ImageFormat:
    return register(
        ImageFormat(
            name=kind,
            text=text,
            is_file=lambda name: False,
            is_folder=lambda listing: _layout(listing) == kind,
            open=lambda place: _contents(kind, place),
        )
    )


FOLDER = _format(
    "folder", "one subfolder of images per class, sorted by name; images beside the subfolders have no label"
)
FLAT = _format("flat", "a folder of images without labels")
