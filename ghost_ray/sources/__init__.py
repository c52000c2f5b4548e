"""What images there are, wherever they lie and however they are packed.

>>> from ghost_ray.sources import decode, open_source
>>> source = open_source("imagenet/val")                     # doctest: +SKIP
>>> for image in source.reader.read(source.items.slice(0, 8)):  # doctest: +SKIP
...     picture = decode(image.data)
"""

from __future__ import annotations

from ghost_ray.sources.base import ITEMS, Failure, Image, Reader, Source, read_bytes
from ghost_ray.sources.decoding import DecodeError, decode
from ghost_ray.sources.labels import LabelMap, load_classes, map_labels
from ghost_ray.sources.opening import FORMATS, fingerprint_of, open_source
from ghost_ray.sources.selection import select

__all__ = [
    "FORMATS",
    "ITEMS",
    "DecodeError",
    "Failure",
    "Image",
    "LabelMap",
    "Reader",
    "Source",
    "decode",
    "fingerprint_of",
    "load_classes",
    "map_labels",
    "open_source",
    "read_bytes",
    "select",
]
