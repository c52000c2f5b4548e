"""Sources of images, in any place and any format.

>>> from ghost_ray.sources import decode, open_source
>>> source = open_source("imagenet/val")                     # doctest: +SKIP
>>> for scan in source.reader.scan(source.shards[0]):        # doctest: +SKIP
...     for image in source.reader.read(scan.items):
...         picture = decode(image.data)

source      what a source is: shards, scans of them, a reader; the preview and the fingerprint
reading     listing and reading files, on stores that may fail for a while
image_formats    formats by name, and opening a source
folders, image_lists, parquet, tars    one format each
labels      a source's own labels → classes of a head
subsampling    a seeded choice of images
decoding    encoded bytes → picture
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ghost_ray.sources.decoding import DecodeError, decode
from ghost_ray.sources.image_formats import (
    Contents,
    ImageFormat,
    Place,
    container_format,
    fingerprint_of,
    format_setting,
    formats,
    open_source,
    refused_plugins,
    register,
    register_plugins,
    runs_of_one_file,
    unregister,
)
from ghost_ray.sources.labels import (
    LabelFacts,
    LabelMap,
    RawLabels,
    load_classes,
    map_labels,
    match_labels,
    rule_is_clear,
)
from ghost_ray.sources.reading import read_bytes, retried
from ghost_ray.sources.source import (
    ITEMS,
    Failure,
    Image,
    ListingDigest,
    Preview,
    Reader,
    Scan,
    Shard,
    Source,
    common_names,
    find_images,
    list_all,
    make_items,
    refuse_repeated,
    shards_fingerprint,
)
from ghost_ray.sources.subsampling import Choice, Lowest, OnlyKeys, select

for _module in pkgutil.iter_modules(__path__):  # those of the formats register them
    import_module(f"{__name__}.{_module.name}")
register_plugins()

__all__ = [
    "ITEMS",
    "Choice",
    "Contents",
    "DecodeError",
    "Failure",
    "Image",
    "ImageFormat",
    "LabelFacts",
    "LabelMap",
    "ListingDigest",
    "Lowest",
    "OnlyKeys",
    "Place",
    "Preview",
    "RawLabels",
    "Reader",
    "Scan",
    "Shard",
    "Source",
    "common_names",
    "container_format",
    "decode",
    "find_images",
    "fingerprint_of",
    "format_setting",
    "formats",
    "list_all",
    "load_classes",
    "make_items",
    "map_labels",
    "match_labels",
    "open_source",
    "read_bytes",
    "refuse_repeated",
    "refused_plugins",
    "register",
    "retried",
    "rule_is_clear",
    "runs_of_one_file",
    "select",
    "shards_fingerprint",
    "unregister",
]
