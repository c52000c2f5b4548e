"""An image list in OpenOOD's layout: a text file with ``path label`` lines, paths below a root.

A shard is the lines that begin in a slice of the file's bytes.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from ghost_ray.errors import InputError, one_line
from ghost_ray.files import reaching, resolve
from ghost_ray.sources.image_formats import Contents, ImageFormat, Place, register
from ghost_ray.sources.reading import FileReader, SteadyFile
from ghost_ray.sources.source import IMAGE_SUFFIXES, Scan, Shard, make_items, require_distinct

SUFFIXES = (".txt", ".lst", ".tsv")
_SLICE_BYTES = 1 << 20
_LINES_OF_A_SCAN = 4096
_BEYOND = 64 << 10  # read after a slice at a time, to the end of its last line


@dataclass(frozen=True)
class ListReader(FileReader):
    """Shards are slices of the list; the images are files below the root."""

    list_filesystem: fs.FileSystem
    list_folder: str
    uri: str

    def scan(self, shard: Shard, bodies: bool = False) -> Iterator[Scan]:
        with reaching(self.uri, "data"):
            content = self._lines(shard)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError("data", self.uri, f"cannot be read as an image list: {one_line(error)}") from error
        where = f" after byte {shard.start:,}" if shard.start else ""
        lines, before = text.split("\n"), []
        for first in range(0, len(lines), _LINES_OF_A_SCAN):
            some = enumerate(lines[first : first + _LINES_OF_A_SCAN], first + 1)
            rows = [_parse(line, f"line {number}{where}", self.uri) for number, line in some if line.strip()]
            keys = pa.array([key for key, _ in rows], pa.string())
            before.append(keys)
            share = min(1.0, _LINES_OF_A_SCAN / len(lines))
            yield Scan(make_items(keys, keys, [label or None for _, label in rows]), share=share)
        require_distinct(pa.chunked_array(before), self.uri)

    def _lines(self, shard: Shard) -> bytes:
        """The bytes of all lines that begin in the slice."""
        with SteadyFile(self.list_filesystem, posixpath.join(self.list_folder, shard.file)) as handle:
            # With the byte before it, which shows whether a line begins at the start of the slice.
            first = max(0, shard.start - 1)
            held = handle.read_at(shard.stop - first, first)
            begin = held.find(b"\n") + 1 if shard.start else 0
            if shard.start and not begin:
                return b""  # in the middle of a line that began before
            if held.endswith(b"\n"):
                return held[begin:]
            at = shard.stop
            while more := handle.read_at(_BEYOND, at):
                end = more.find(b"\n")
                held += more if end < 0 else more[:end]
                if end >= 0:
                    break
                at += len(more)
            return held[begin:]


def _open(place: Place) -> Contents:
    """The slices of a list; without a root, its paths are below the list's own folder."""
    folder, name = posixpath.split(place.path)
    if place.root:
        image_filesystem, base = resolve(place.root, "root")
    else:
        image_filesystem, base = place.filesystem, folder
    size = sum(place.listing.sizes)
    starts = range(0, max(1, size), _SLICE_BYTES)
    stops = [min(start + _SLICE_BYTES, size) for start in starts]
    bounds = zip(starts, stops, strict=True)
    return Contents(
        shards=[Shard(f"byte {start}", name, start, stop, max(1, stop - start)) for start, stop in bounds],
        reader=ListReader(image_filesystem, base, place.filesystem, folder, place.uri),
        keys_may_repeat=True,
    )


def _parse(line: str, where: str, uri: str) -> tuple[str, str]:
    """``(path, label)`` of a line; the label is empty where the line is a path alone."""
    line = line.strip()
    path, separator, label = line.rpartition(" ") if "\t" not in line else line.rpartition("\t")
    if not separator or line.lower().endswith(IMAGE_SUFFIXES):
        path, label = line, ""
    path = path.strip()
    if not path.isprintable():
        raise InputError("data", uri, f"{where} has control characters in its path")
    if path.startswith("/") or ".." in path.split("/"):
        problem = f"{where} has a path outside the root, {path!r}"
        raise InputError("data", uri, problem, "paths in the list are relative to `root`")
    return posixpath.normpath(path), label.strip()


LIST = register(
    ImageFormat(
        name="list",
        text="a text file of `path label` lines (.txt, .lst, .tsv), as OpenOOD has them",
        is_file=lambda name: name.lower().endswith(SUFFIXES),
        is_folder=lambda listing: False,
        open=_open,
        takes_root=True,
    )
)
