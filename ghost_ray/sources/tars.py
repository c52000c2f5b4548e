"""WebDataset: tars in which ``name.jpg`` is beside ``name.cls`` or ``name.json``. A shard is a tar.

`tarfile` reads the headers. Its own walk over a tar is not used: it gives up at damage that follows a pax header, and a
hostile pax header of 60 kB takes it a gigabyte of memory.
"""

from __future__ import annotations

import json
import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from ghost_ray.config.limits import Stage
from ghost_ray.sources.image_formats import container_format, register, runs_of_one_file
from ghost_ray.sources.reading import LOOK_AHEAD, MAX_ENCODED_BYTES, ReadAhead, SteadyFile, read_error, too_large
from ghost_ray.sources.source import (
    REST,
    Failure,
    Image,
    Scan,
    Shard,
    is_image,
    make_items,
    refuse_repeated,
    safe_key,
)

LABEL_FIELDS = ("label", "cls", "class", "class_id", "target")  # looked for in a .json, in this order
_MAX_REQUEST = 8 << 20  # neighbouring images are read together up to this
_IMAGES_OF_A_SCAN = 4096
_BODIES_OF_A_SCAN, _BYTES_OF_A_SCAN = 128, 32 << 20  # where the images are read as well
_MAX_SIDECAR = 1 << 20  # labels and long names larger than this are not read
_BLOCK = tarfile.BLOCKSIZE
_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_DAMAGED = "a damaged header; everything after it, up to the next valid header, is lost"
_DIGITS = 20  # no file is longer than the number of so many digits, and Python refuses those of thousands


class Member(NamedTuple):
    """A regular file in a tar."""

    name: str  # made safe: it is a key, never a path
    start: int  # of its bytes
    size: int


def members(tar: ReadAhead, file: str, failures: list[Failure]) -> Iterator[Member]:
    """Regular files of a tar, those after damage and after an end mark included. Damage is noted once for each gap."""
    offset = end = 0  # the next header is expected where the last member ends
    long_name: str | None = None
    long_size: int | None = None
    while offset + _BLOCK <= tar.length:
        header = _header(tar.read(offset, _BLOCK))
        if header is None:  # an end mark or damage
            offset += _BLOCK
            continue
        if offset > end:
            long_name = long_size = None
            if not _is_blank(tar, end, offset):
                failures.append(Failure(f"{file}/@{end}", Stage.READ, _DAMAGED, (offset - end) / tar.length))
        start, name, size = offset + _BLOCK, header.name, header.size
        if header.type in _REGULAR:
            name, size = long_name or name, size if long_size is None else long_size
        if start + size > tar.length:
            problem = "the tar ends inside this member; anything after it is lost"
            failures.append(Failure(f"{file}/{safe_key(name)}", Stage.READ, problem, REST))
            return
        if header.type == tarfile.GNUTYPE_LONGNAME and size <= _MAX_SIDECAR:
            long_name = _text(tar.read(start, size).partition(b"\0")[0])
        elif header.type == tarfile.XHDTYPE and size <= _MAX_SIDECAR:
            long_name, long_size = _pax(tar.read(start, size))
        else:
            long_name = long_size = None
            if header.type in _REGULAR:
                yield Member(safe_key(name), start, size)
        offset = end = start + -(-size // _BLOCK) * _BLOCK
    if tar.length - end < _BLOCK:
        problem = "the tar has no end mark; anything after its last member is lost"
        failures.append(Failure(file, Stage.READ, problem, REST))
    elif not _is_blank(tar, end, tar.length):
        failures.append(Failure(f"{file}/@{end}", Stage.READ, _DAMAGED, REST))


def _header(block: bytes) -> tarfile.TarInfo | None:
    """A header block; None if it is empty, or its checksum or its numbers are wrong."""
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "backslashreplace")
    except tarfile.HeaderError:
        return None
    return header if header.size >= 0 else None


def _is_blank(tar: ReadAhead, start: int, stop: int) -> bool:
    steps = range(start, stop, LOOK_AHEAD)
    return not any(tar.read(at, min(LOOK_AHEAD, stop - at)).strip(b"\0") for at in steps)


def _pax(body: bytes) -> tuple[str | None, int | None]:
    """Path and size from a pax header: records ``length keyword=value newline``."""
    name, size, at = None, None, 0
    while at < len(body):
        digits = body[at : at + _DIGITS].partition(b" ")[0]
        length = int(digits) if digits.isdigit() else 0
        if not length:
            break
        # A record is not longer than the header it is in.
        keyword, _, value = body[at + len(digits) + 1 : at + length - 1].partition(b"=")
        if keyword == b"path":
            name = _text(value)
        elif keyword == b"size" and value.isdigit():
            size = int(value.lstrip(b"0")[:_DIGITS] or b"0")
        at += length
    return name, size


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")  # names in tars are bytes, Arrow strings are UTF-8


@dataclass
class _Samples:
    """What is known of a tar while its members are read.

    Members with one stem that follow each other are a sample. A label in the sample counts; in it, that of the .cls.
    An image without one has the first label under its stem elsewhere in the tar.
    """

    file: str
    with_bodies: bool
    images: list[Member] = field(default_factory=list)
    bodies: list[bytes | None] = field(default_factory=list)  # None: too large
    failures: list[Failure] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    labels: dict[str, tuple[int, int, str]] = field(default_factory=dict)  # stem → sample, rank, label
    sample: int = 0
    stem: str = ""
    held: int = 0  # bytes of the bodies
    to_the_end: bool = False  # an image waits for a label that may be anywhere

    def add(self, member: Member, stem: str, tar: ReadAhead) -> None:
        if stem != self.stem:
            self.sample, self.stem = self.sample + 1, stem
        if is_image(member.name):
            if member.name in self.names:
                raise refuse_repeated(f"{self.file}/{member.name}", self.file)
            self.names.add(member.name)
            self.images.append(member)
            if self.with_bodies:
                fits = member.size <= MAX_ENCODED_BYTES
                self.bodies.append(tar.read(member.start, member.size) if fits else None)
                self.held += member.size if fits else 0
        elif member.name.endswith((".cls", ".json")) and member.size <= _MAX_SIDECAR:
            content = tar.read(member.start, member.size)
            rank, label = (0, _plain_label(content)) if member.name.endswith(".cls") else (1, _json_label(content))
            before = self.labels.get(stem)
            if label is not None and (before is None or (before[0] == self.sample and rank <= before[1])):
                self.labels[stem] = self.sample, rank, label

    def is_enough(self) -> bool:
        """Whether the collected images can be returned; a listing waits for the labels of all its images."""
        if self.with_bodies:
            return len(self.images) >= _BODIES_OF_A_SCAN or self.held > _BYTES_OF_A_SCAN
        if len(self.images) < _IMAGES_OF_A_SCAN or self.to_the_end:
            return False
        self.to_the_end = None in self._labels()
        return not self.to_the_end

    def _labels(self) -> list[str | None]:
        known = (self.labels.get(posixpath.splitext(member.name)[0]) for member in self.images)
        return [None if label is None else label[2] for label in known]

    def take(self, share: float) -> Scan:
        """What was collected since the last time."""
        keys = [f"{self.file}/{member.name}" for member in self.images]
        sizes, starts = [member.size for member in self.images], [member.start for member in self.images]
        items = make_items(keys, pa.repeat(pa.scalar(self.file), len(keys)), self._labels(), sizes, starts)
        images = list(map(_image, keys, self.bodies, sizes)) if self.with_bodies else None
        scan = Scan(items, list(self.failures), images=images, share=share)
        self.images, self.bodies, self.held = [], [], 0
        self.failures.clear()  # in place: the walk over the members adds to it
        return scan


@dataclass(frozen=True)
class TarReader:
    """Items are byte ranges of tar files."""

    filesystem: fs.FileSystem
    base: str

    def scan(self, shard: Shard, bodies: bool = False) -> Iterator[Scan]:
        listed, path = _Samples(shard.file, bodies), posixpath.join(self.base, shard.file)
        begun = end = size = 0
        try:
            with SteadyFile(self.filesystem, path) as file:
                size = file.length
                tar = ReadAhead(file, size)
                for member in members(tar, shard.file, listed.failures):
                    stem = posixpath.splitext(member.name)[0]
                    if stem != listed.stem and listed.is_enough():
                        yield listed.take((member.start - begun) / size)
                        begun = member.start
                    listed.add(member, stem, tar)
                    end = member.start + member.size
        except (OSError, pa.ArrowException) as error:
            listed.failures.append(Failure(shard.file, Stage.READ, read_error(error), REST))
        whole = not listed.failures or listed.failures[-1].share != REST
        yield listed.take(((size if whole else end) - begun) / max(1, size))

    def read(self, items: pa.Table) -> Iterator[Image]:
        for file, run in runs_of_one_file(items):
            columns = (run[name].to_pylist() for name in ("key", "start", "size"))
            ranges = list(zip(*columns, strict=True))
            path = posixpath.join(self.base, file)
            try:
                handle = SteadyFile(self.filesystem, path)
            except (OSError, pa.ArrowException) as error:
                yield from (Image(key, None, read_error(error)) for key, _, _ in ranges)
                continue
            with handle:
                for together in _neighbours(ranges):
                    yield from _read_together(handle, together)


def _image(key: str, body: bytes | None, size: int) -> Image:
    return Image(key, body, None if body is not None else too_large(size))


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


def _read_together(handle: SteadyFile, ranges: list[tuple[str, int, int]]) -> Iterator[Image]:
    first, end = ranges[0][1], ranges[-1][1] + ranges[-1][2]
    if len(ranges) == 1 and ranges[0][2] > MAX_ENCODED_BYTES:
        yield _image(ranges[0][0], None, ranges[0][2])
        return
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


WEBDATASET = register(
    container_format(
        "webdataset",
        "WebDataset shards: .tar files in which `name.jpg` has `name.cls` or `name.json` beside it",
        ".tar",
        TarReader,
    )
)
