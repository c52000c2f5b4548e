"""Sources of images, in any place and any format.

>>> from ghost_ray.sources import decode, open_source
>>> source = open_source("imagenet/val")                     # doctest: +SKIP
>>> for scan in source.reader.scan(source.parts[0]):         # doctest: +SKIP
...     for image in source.reader.read(scan.items):
...         picture = decode(image.data)
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ghost_ray.sources.catalogue import (
    Contents,
    ImageFormat,
    Place,
    formats,
    refused_plugins,
    register,
    register_plugins,
    unregister,
)
from ghost_ray.sources.class_tables import load_classes
from ghost_ray.sources.decoding import DecodeError, decode
from ghost_ray.sources.first_look import find_images, look_at_all
from ghost_ray.sources.labels import LabelFacts, LabelMap, RawLabels, map_labels, match_labels, rule_is_clear
from ghost_ray.sources.opening import fingerprint_of, open_source
from ghost_ray.sources.selection import Choice, Lowest, OnlyKeys, select
from ghost_ray.sources.source import ITEMS, Failure, Image, Part, Reader, Scan, Seen, Source, read_bytes

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
    "Lowest",
    "OnlyKeys",
    "Part",
    "Place",
    "RawLabels",
    "Reader",
    "Scan",
    "Seen",
    "Source",
    "decode",
    "find_images",
    "fingerprint_of",
    "formats",
    "load_classes",
    "look_at_all",
    "map_labels",
    "match_labels",
    "open_source",
    "read_bytes",
    "refused_plugins",
    "register",
    "rule_is_clear",
    "select",
    "unregister",
]
