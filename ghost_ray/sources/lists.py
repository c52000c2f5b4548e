"""An image list in OpenOOD's layout: a text file with ``path label`` lines, paths below a root."""

from __future__ import annotations

import posixpath

import pyarrow as pa
from pyarrow import fs

from ghost_ray.errors import InputError, one_line
from ghost_ray.files import resolve
from ghost_ray.sources.base import (
    IMAGE_SUFFIXES,
    FileReader,
    Source,
    listing_fingerprint,
    make_items,
    read_bytes,
    require_distinct,
)


def list_source(uri: str, filesystem: fs.FileSystem, path: str, root: str | None) -> Source:
    """The images a list names; without `root`, its paths are below the list's own folder."""
    image_filesystem, base = resolve(root, "--root") if root else (filesystem, posixpath.dirname(path))
    try:
        text = read_bytes(filesystem, path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("--data", uri, f"cannot be read as an image list: {one_line(error)}") from error
    rows = [_parse(line, number, uri) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    rows.sort()
    keys = pa.array([key for key, _ in rows], pa.string())
    labels = pa.array([label or None for _, label in rows], pa.string())
    require_distinct(keys, uri)
    return Source(
        uri=uri,
        kind="list",
        items=make_items(keys, keys, labels.dictionary_encode()),
        reader=FileReader(image_filesystem, base),
        fingerprint=listing_fingerprint(keys, labels),
    )


def _parse(line: str, number: int, uri: str) -> tuple[str, str]:
    """``(path, label)`` of a line; the label is empty where the line is a path alone."""
    line = line.strip()
    path, separator, label = line.rpartition(" ") if "\t" not in line else line.rpartition("\t")
    if not separator or line.lower().endswith(IMAGE_SUFFIXES):
        path, label = line, ""
    path = path.strip()
    if not all(c.isprintable() for c in path):
        raise InputError("--data", uri, f"line {number} has control characters in its path")
    if path.startswith("/") or ".." in path.split("/"):
        problem = f"line {number} leaves the root with {path!r}"
        raise InputError("--data", uri, problem, "paths in the list are relative to --root")
    return posixpath.normpath(path), label.strip()
