"""The unit of listing, recording and checking: one part of a source, or several consecutive small ones.

Which parts belong together depends on the source alone: the same command finds the same portions again.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from ghost_ray.sources import Part, Source

_IMAGES = 4096  # of a portion at least, about, where the parts are smaller
_PORTIONS = 2048  # at most, about; more would only be more files to keep


class Portion(NamedTuple):
    """Consecutive parts. Their images are numbered from 0 on: the number is an image's place in the portion."""

    number: int
    parts: tuple[Part, ...]


def portions_of(source: Source) -> list[Portion]:
    """All parts of a source, in order."""
    weight = sum(part.size or 1 for part in source.parts)
    images = source.seen.images or _IMAGES * len(source.parts)  # the first look may have found none
    enough = max(_IMAGES, images / _PORTIONS)
    groups: list[list[Part]] = []
    held = enough
    for part in source.parts:
        if held >= enough:
            groups.append([])
            held = 0.0
        groups[-1].append(part)
        held += images * (part.size or 1) / weight
    return [Portion(number, tuple(group)) for number, group in enumerate(groups)]


def portions_digest(portions: list[Portion]) -> str:
    """SHA-256 of which parts there are and how they are put together."""
    digest = hashlib.sha256()
    for portion in portions:
        for part in portion.parts:
            digest.update(f"{portion.number}\t{part.name}\t{part.start}\t{part.stop}\t{part.size}\n".encode())
    return digest.hexdigest()
