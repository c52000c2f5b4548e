"""Which places a job's settings name, and that none is both read and written."""

from __future__ import annotations

import os
import posixpath
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from ghost_ray.config.fields import Place
from ghost_ray.errors import InputError, redact

_SAME_SCHEME = {"gcs": "gs", "abfss": "abfs"}


@dataclass(frozen=True)
class PlaceUse:
    """A place, and the setting that names it, as in ``out`` or ``network.weights``."""

    field: str
    uri: str
    written: bool
    shared: bool = True


def places_of(settings: BaseModel, within: str = "") -> Iterator[PlaceUse]:
    """All places that a job with these settings reaches, those in nested sections included."""
    for name, info in type(settings).model_fields.items():
        value = getattr(settings, name)
        mark = next((mark for mark in info.metadata if isinstance(mark, Place)), None)
        for key, one in value.items() if isinstance(value, dict) else (("", value),):
            if isinstance(one, BaseModel):
                yield from places_of(one, ".".join(filter(None, (within, name, key, ""))) + ".")
            elif mark is not None and isinstance(one, str):
                yield PlaceUse(within + name, one, mark.written, mark.shared)


def require_apart(settings: BaseModel) -> None:
    """Refuse to write a place that is also read, or is within such a place or around it.

    Raises
    ------
    InputError
        Naming both settings.
    """
    places = [(use, _steps(use.uri)) for use in places_of(settings)]
    for number, (use, steps) in enumerate(places):
        for other, others in places[:number] + places[number + 1 :]:
            shorter = min(len(steps), len(others))
            if not use.written or steps[:shorter] != others[:shorter]:
                continue
            how = "is" if steps == others else "is within" if len(steps) > shorter else "contains"
            does = "writes too" if other.written else "reads"
            name = other.field if "." in other.field else f"`{other.field}`"
            problem = f"{how} {redact(other.uri)}, which this command {does} ({name})"
            raise InputError(use.field, redact(use.uri), problem, "choose a place apart from it")


def _steps(uri: str) -> list[str]:
    """A place as the names that lead to it; links, ``..``, credentials and options make no difference."""
    if "://" not in uri or uri.startswith("file://"):
        path = os.path.realpath(os.path.expanduser(uri.removeprefix("file://")))
        return ["file", *path.strip("/").split("/")]
    scheme = uri.partition("://")[0]
    scheme = _SAME_SCHEME.get(scheme, scheme)
    shown = uri if scheme == "abfs" else redact(uri)  # of abfs, the container is before the @
    path = urllib.parse.unquote(shown.partition("://")[2].partition("?")[0])
    return [scheme, *posixpath.normpath(path).strip("/").split("/")]
