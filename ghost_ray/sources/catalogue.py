"""Image formats by name: one entry says how a format is recognised, split into parts and fingerprinted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyarrow import fs

from ghost_ray.errors import InputError, nearest
from ghost_ray.plugins import load_plugins
from ghost_ray.sources.file_listing import Listing, list_files
from ghost_ray.sources.source import Part, Reader


@dataclass(frozen=True)
class Place:
    """The content at a URI, as a first look found it."""

    uri: str  # without credentials, for messages
    filesystem: fs.FileSystem
    path: str  # the folder or the single file
    base: str  # the folder, or the one that the file is in
    listing: Listing  # names relative to ``base``; of very many files only some, which tell the format
    root: str | None = None  # where the paths of an image list begin, if given

    def every_file(self) -> Listing:
        """All files, for formats that have few and large ones."""
        return self.listing if self.listing.complete else list_files(self.filesystem, self.base, self.uri)


@dataclass(frozen=True)
class Contents:
    """The parts that a format finds at a place; none of them has been opened."""

    parts: list[Part]
    reader: Reader
    class_names: list[str] | None = None  # where they are known without opening a part
    fingerprint: str | None = None  # the same
    keys_may_repeat: bool = False  # from part to part; within a part the reader sees to it


@dataclass(frozen=True)
class ImageFormat:
    """One image format. Only its entry knows the details of a format."""

    name: str  # what `format` is set to, and the kind of data in a store's manifest
    text: str  # one line for help and documentation
    is_file: Callable[[str], bool]  # whether a single file is of this format, by its name
    is_folder: Callable[[Listing], bool]  # whether a folder holds files of this format
    open: Callable[[Place], Contents]  # finds the parts; InputError if they are not of this format
    takes_root: bool = False  # paths inside it may begin at `root`


_formats: dict[str, ImageFormat] = {}
_refused: dict[str, str] = {}  # plug-ins that cannot be used, and why


def register(entry: ImageFormat) -> ImageFormat:
    """Register a format: from now on it is detected, opened and shown in the help."""
    if entry.name in _formats:
        raise ValueError(f"two image formats are named {entry.name!r}")
    _formats[entry.name] = entry
    return entry


def unregister(name: str) -> None:
    """Forget a format."""
    del _formats[name]


def register_plugins() -> None:
    """Register the formats of installed packages."""

    def accept(name: str, entry: object) -> None:
        if not isinstance(entry, ImageFormat):
            raise ValueError(f"it is a {type(entry).__name__}, not a ghost_ray.sources.ImageFormat")
        if entry.name != name:
            raise ValueError(f"the entry point is named {name!r}, the format {entry.name!r}")
        if _formats.get(name) is not entry:  # its module may have registered it already
            register(entry)

    _refused.update(load_plugins("formats", accept))


def refused_plugins() -> dict[str, str]:
    """The formats of installed packages that cannot be used: name and reason."""
    return dict(_refused)


def formats() -> list[ImageFormat]:
    """All formats, in the order of registration."""
    return list(_formats.values())


def image_format(name: str) -> ImageFormat:
    """The format of a name; InputError with the nearest one where there is none."""
    if name in _refused:
        raise InputError("format", name, _refused[name], "fix or remove that package")
    if name not in _formats:
        raise InputError("format", name, f"is not one of {', '.join(_formats)}", nearest(name, _formats))
    return _formats[name]


def format_setting() -> str:
    """The setting with all its values, for messages: ```format=folder|flat```."""
    return f"`format={'|'.join(_formats)}`"
