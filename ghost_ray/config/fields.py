"""The kinds of values that settings are made of, and the places that settings name."""

from __future__ import annotations

import os
import posixpath
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from ghost_ray.errors import InputError, redact

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SAME_SCHEME = {"gcs": "gs", "abfss": "abfs"}


@dataclass(frozen=True)
class Positional:
    """Marks a field that is an argument rather than an option."""


@dataclass(frozen=True)
class Metavar:
    """The word that stands for the value in ``--help``."""

    name: str


@dataclass(frozen=True)
class Catalogue:
    """Marks a field whose values are entries of a catalogue in a higher layer, which ``--help`` lists.

    Settings only hold the name; it is looked up, and refused if wrong, where it is used.
    """

    name: str


@dataclass(frozen=True)
class Place:
    """Marks a field that names a place which a job reads or writes."""

    written: bool = False
    shared: bool = True  # whether the workers of the job access it too


def pairs(value: Any) -> Any:
    """``NAME=PLACE`` words, or a mapping from YAML, as a mapping."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    found: dict[str, str] = {}
    for word in value:
        name, sign, place = str(word).partition("=")
        if not (sign and name and place):
            raise ValueError(f"{word!r} is not of the form NAME=VALUE")
        if name in found:
            raise ValueError(f"the name {name!r} is given twice")
        found[name] = place
    return found


def _words(value: Any) -> Any:
    """A list, or one string with commas, as a tuple of words."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    return tuple(w.strip() for item in value for w in str(item).split(",") if w.strip())


def _plain_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}", name):
        raise ValueError(f"{name!r} is not a plain name (letters, digits, _ . + -)")
    return name


def actors_range(value: Any) -> Any:
    """``MIN:MAX`` or one number, which YAML gives as such."""
    if value is None:
        return None
    text = str(value)
    match = re.fullmatch(r"(\d{1,6})(?::(\d{1,6}))?", text)
    if not match or int(match[1]) < 1 or (match[2] and int(match[2]) < int(match[1])):
        raise ValueError("is not MIN:MAX with 1 ≤ MIN ≤ MAX, for example 1:8")
    return text


def _duration(value: Any) -> Any:
    """``48h``, ``90m``, ``7d`` or a number of seconds, as seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", str(value))
    if not match:
        raise ValueError("is not a time such as 48h, 90m or 7d")
    return float(match[1]) * _SECONDS[match[2] or "s"]


Duration = Annotated[float, BeforeValidator(_duration), Field(gt=0)]
Wait = Annotated[float, BeforeValidator(_duration), Metavar("TIME")]  # 0: not at all
Name = Annotated[str, AfterValidator(_plain_name)]
Pairs = Annotated[dict[Name, str], BeforeValidator(pairs)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Fraction = Annotated[float, Field(ge=0, le=1)]


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
