"""WebDataset shards: tars in which ``name.jpg`` stands beside ``name.cls`` or ``name.json``."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyarrow import fs

from ghost_ray.sources.base import Failure, Image, is_image, make_items, read_error
from ghost_ray.sources.retry import retried
from ghost_ray.sources.shards import Scan, runs_of_one_file
from ghost_ray.sources.tar_members import LOOK_AHEAD, MAX_SIDECAR, Member, Window, members

LABEL_FIELDS = ("label", "cls", "class", "class_id", "target")  # looked for in a .json, in this order
_MAX_REQUEST = 8 << 20  # neighbouring images are read together up to this


def scan(filesystem: fs.FileSystem, base: str, file: str) -> Scan:
    """Images and labels of one tar from its headers and label files; image bodies are jumped over."""
    images: list[Member] = []
    labels: dict[str, tuple[int, str]] = {}
    failures: list[Failure] = []
    try:
        path = posixpath.join(base, file)
        with retried(filesystem, lambda: filesystem.open_input_file(path)) as handle:
            window = Window(filesystem, handle, handle.size())
            for member in members(window, file, failures):
                stem, suffix = posixpath.splitext(member.name)
                if is_image(member.name):
                    images.append(member)
                elif suffix in (".cls", ".json") and member.size <= MAX_SIDECAR:
                    content = window.read(member.start, member.size)
                    label = _plain_label(content) if suffix == ".cls" else _json_label(content)
                    rank = 0 if suffix == ".cls" else 1
                    if label is not None and rank <= labels.get(stem, (rank, ""))[0]:
                        labels[stem] = rank, label
    except (OSError, pa.ArrowException) as error:
        failures.append(Failure(file, "read", read_error(error)))
    keys = [f"{file}/{member.name}" for member in images]
    raw = [labels.get(posixpath.splitext(member.name)[0], (0, None))[1] for member in images]
    sizes, starts = [member.size for member in images], [member.start for member in images]
    return Scan(make_items(keys, pa.repeat(pa.scalar(file), len(keys)), raw, sizes, starts), failures)


@dataclass(frozen=True)
class TarReader:
    """Items are byte ranges of tar files."""

    filesystem: fs.FileSystem
    base: str

    def read(self, items: pa.Table) -> Iterator[Image]:
        for file, run in runs_of_one_file(items):
            columns = (run[name].to_pylist() for name in ("key", "start", "size"))
            ranges = list(zip(*columns, strict=True))
            path = posixpath.join(self.base, file)
            try:
                handle = retried(self.filesystem, partial(self.filesystem.open_input_file, path))
            except (OSError, pa.ArrowException) as error:
                yield from (Image(key, None, read_error(error)) for key, _, _ in ranges)
                continue
            with handle:
                for together in _neighbours(ranges):
                    yield from _read_together(self.filesystem, handle, together)


def _plain_label(content: bytes) -> str | None:
    try:
        return content.decode().strip() or None
    except UnicodeDecodeError:
        return None


def _json_label(content: bytes) -> str | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        value = next((value[name] for name in LABEL_FIELDS if value.get(name) is not None), None)
    return str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else None


def _neighbours(ranges: list[tuple[str, int, int]]) -> Iterator[list[tuple[str, int, int]]]:
    """Consecutive byte ranges that one request of bounded size covers without much waste."""
    together: list[tuple[str, int, int]] = []
    for key, start, size in ranges:
        if together:
            first, (_, last_start, last_size) = together[0][1], together[-1]
            gap = start - (last_start + last_size)
            if not 0 <= gap <= LOOK_AHEAD or start + size - first > _MAX_REQUEST:
                yield together
                together = []
        together.append((key, start, size))
    if together:
        yield together


def _read_together(
    filesystem: fs.FileSystem, handle: pa.NativeFile, ranges: list[tuple[str, int, int]]
) -> Iterator[Image]:
    first = ranges[0][1]
    end = ranges[-1][1] + ranges[-1][2]
    try:
        held = retried(filesystem, lambda: handle.read_at(end - first, first))
    except (OSError, pa.ArrowException) as error:
        if len(ranges) == 1:
            yield Image(ranges[0][0], None, read_error(error))
            return
        for one in ranges:
            yield from _read_together(filesystem, handle, [one])
        return
    for key, start, size in ranges:
        data = held[start - first : start - first + size]
        yield Image(key, data, None) if len(data) == size else Image(key, None, "the tar ends inside this member")
