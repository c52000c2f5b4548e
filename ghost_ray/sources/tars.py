"""WebDataset shards: tars in which ``name.jpg`` stands beside ``name.cls`` or ``name.json``."""

from __future__ import annotations

import json
import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import fs

from ghost_ray.errors import one_line
from ghost_ray.sources.base import Failure, Image, is_image, make_items, read_error, safe_key
from ghost_ray.sources.shards import Scan, runs_of_one_file

LABEL_FIELDS = ("label", "cls", "class", "class_id", "target")  # looked for in a .json, in this order
_BLOCK = tarfile.BLOCKSIZE
_LOOK_AHEAD = 32 << 10  # header, label and next header usually arrive with one request
_MAX_SIDECAR = 1 << 20  # a .cls, .json or long name larger than this is not read
_MAX_REQUEST = 8 << 20  # neighbouring images are read together up to this


@dataclass(frozen=True)
class _Member:
    name: str
    start: int  # of its bytes
    size: int


@dataclass
class _Window:
    """Small reads at increasing offsets, a few of them served by each request."""

    handle: pa.NativeFile
    length: int
    _offset: int = 0
    _held: bytes = field(default=b"", repr=False)

    def read(self, offset: int, count: int) -> bytes:
        if not self._offset <= offset <= offset + count <= self._offset + len(self._held):
            self._held = self.handle.read_at(max(count, _LOOK_AHEAD), offset)
            self._offset = offset
        at = offset - self._offset
        return self._held[at : at + count]


def scan(filesystem: fs.FileSystem, base: str, file: str) -> Scan:
    """Images and labels of one tar from its headers and label files; image bodies are jumped over."""
    images: list[_Member] = []
    labels: dict[str, tuple[int, str]] = {}
    failures: list[Failure] = []
    try:
        with filesystem.open_input_file(posixpath.join(base, file)) as handle:
            window = _Window(handle, handle.size())
            for member in _members(window, file, failures):
                stem, suffix = posixpath.splitext(member.name)
                if is_image(member.name):
                    images.append(member)
                elif suffix in (".cls", ".json") and member.size <= _MAX_SIDECAR:
                    content = window.read(member.start, member.size)
                    label = _plain_label(content) if suffix == ".cls" else _json_label(content)
                    rank = 0 if suffix == ".cls" else 1
                    if label is not None and rank <= labels.get(stem, (rank, ""))[0]:
                        labels[stem] = rank, label
    except (OSError, pa.ArrowException) as error:
        failures.append(Failure(file, "read", read_error(error)))
    keys = [f"{file}/{safe_key(member.name)}" for member in images]
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
            try:
                handle = self.filesystem.open_input_file(posixpath.join(self.base, file))
            except (OSError, pa.ArrowException) as error:
                yield from (Image(key, None, read_error(error)) for key, _, _ in ranges)
                continue
            with handle:
                for together in _neighbours(ranges):
                    yield from _read_together(handle, together)


def _members(window: _Window, file: str, failures: list[Failure]) -> Iterator[_Member]:
    """Regular files of the tar. What is broken is noted once; the walk goes on at the next sound header."""
    offset = 0
    long_name: str | None = None
    long_size: int | None = None
    while offset + _BLOCK <= window.length:
        block = window.read(offset, _BLOCK)
        if not block.strip(b"\0"):
            return
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            problem = f"a rotten header ({one_line(error)}); what follows, up to the next sound one, is lost"
            failures.append(Failure(f"{file}/@{offset}", "read", problem))
            offset = _next_header(window, offset + _BLOCK)
            if offset >= window.length:
                return
            long_name = long_size = None
            continue
        size = header.size if long_size is None else long_size
        start, end = offset + _BLOCK, offset + _BLOCK + size
        name = long_name or header.name
        if end > window.length:
            key = f"{file}/{safe_key(_printable(name))}"
            failures.append(Failure(key, "read", "the tar ends inside this member; what came after it is lost"))
            return
        if header.type in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE) and size <= _MAX_SIDECAR:
            body = window.read(start, size)
            if header.type == tarfile.GNUTYPE_LONGNAME:
                long_name = body.rstrip(b"\0").decode("utf-8", "surrogateescape")
            else:
                long_name, long_size = _pax(body, long_name, long_size)
        else:
            long_name, long_size = None, None
            if header.isreg():
                yield _Member(_printable(name), start, size)
        offset = start + -(-size // _BLOCK) * _BLOCK
    failures.append(Failure(file, "read", "the tar has no end mark; what may have come after its last member is lost"))


def _next_header(window: _Window, offset: int) -> int:
    """The first block from `offset` on that is a sound header, or the file's length."""
    while offset + _BLOCK <= window.length:
        block = window.read(offset, _BLOCK)
        if block[257:262] == b"ustar":
            try:
                tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
                return offset
            except tarfile.HeaderError:
                pass
        offset += _BLOCK
    return window.length


def _pax(body: bytes, name: str | None, size: int | None) -> tuple[str | None, int | None]:
    """Path and size from a pax header: records ``length keyword=value newline``."""
    while body:
        length = body.partition(b" ")[0]
        if not length.isdigit() or not int(length):
            break
        keyword, _, value = body[len(length) + 1 : int(length) - 1].partition(b"=")
        if keyword == b"path":
            name = value.decode("utf-8", "surrogateescape")
        elif keyword == b"size" and value.isdigit():
            size = int(value)
        body = body[int(length) :]
    return name, size


def _printable(name: str) -> str:
    # Arrow strings are UTF-8; a name in another encoding is only a key here, never a path.
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


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
            if not 0 <= gap <= _LOOK_AHEAD or start + size - first > _MAX_REQUEST:
                yield together
                together = []
        together.append((key, start, size))
    if together:
        yield together


def _read_together(handle: pa.NativeFile, ranges: list[tuple[str, int, int]]) -> Iterator[Image]:
    first = ranges[0][1]
    end = ranges[-1][1] + ranges[-1][2]
    try:
        held = handle.read_at(end - first, first)
    except (OSError, pa.ArrowException) as error:
        if len(ranges) == 1:
            yield Image(ranges[0][0], None, read_error(error))
            return
        for one in ranges:
            yield from _read_together(handle, [one])
        return
    for key, start, size in ranges:
        data = held[start - first : start - first + size]
        yield Image(key, data, None) if len(data) == size else Image(key, None, "the tar ends inside this member")
