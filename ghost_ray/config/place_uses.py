"""Which places a job's settings name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from ghost_ray.config.fields import Place


@dataclass(frozen=True)
class PlaceUse:
    """A place, and the setting that names it, as in ``out`` or ``network.weights``."""

    field: str
    uri: str
    written: bool


def places_of(settings: BaseModel, within: str = "") -> Iterator[PlaceUse]:
    """All places that the workers of a job with these settings reach, those in nested sections included."""
    for name, info in type(settings).model_fields.items():
        value = getattr(settings, name)
        mark = next((mark for mark in info.metadata if isinstance(mark, Place)), None)
        for key, one in value.items() if isinstance(value, dict) else (("", value),):
            if isinstance(one, BaseModel):
                yield from places_of(one, ".".join(filter(None, (within, name, key, ""))) + ".")
            elif mark is not None and isinstance(one, str):
                yield PlaceUse(within + name, one, mark.written)
