"""WebDataset shards: tars in which ``name.jpg`` is beside ``name.cls`` or ``name.json``. A part is a shard."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import fs

from ghost_ray.config.policies import Stage
from ghost_ray.sources.catalogue import register
from ghost_ray.sources.retry import SteadyFile
from ghost_ray.sources.shards import runs_of_one_file, shard_format
from ghost_ray.sources.source import (
    MAX_ENCODED_BYTES,
    REST,
    Failure,
    Image,
    Part,
    Scan,
    is_image,
    make_items,
    read_error,
    refuse_repeated,
    too_large,
)
from ghost_ray.sources.tar_members import LOOK_AHEAD, MAX_SIDECAR, Member, Window, members

LABEL_FIELDS = ("label", "cls", "class", "class_id", "target")  # looked for in a .json, in this order
_MAX_REQUEST = 8 << 20  # neighbouring images are read together up to this


_IMAGES_OF_A_SCAN = 4096
_BODIES_OF_A_SCAN, _BYTES_OF_A_SCAN = 128, 32 << 20  # where the images are read as well


@dataclass
class _Shard:
    """What is known of a shard while its members are read.

    Members with one stem that follow each other are a sample. A label in the sample counts; in it, that of the .cls.
    An image without one has the first label under its stem elsewhere in the shard.
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

    def add(self, member: Member, stem: str, window: Window) -> None:
        if stem != self.stem:
            self.sample, self.stem = self.sample + 1, stem
        if is_image(member.name):
            if member.name in self.names:
                raise refuse_repeated(f"{self.file}/{member.name}", self.file)
            self.names.add(member.name)
            self.images.append(member)
            if self.with_bodies:
                fits = member.size <= MAX_ENCODED_BYTES
                self.bodies.append(window.read(member.start, member.size) if fits else None)
                self.held += member.size if fits else 0
        elif member.name.endswith((".cls", ".json")) and member.size <= MAX_SIDECAR:
            content = window.read(member.start, member.size)
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

    def scan(self, part: Part, bodies: bool = False) -> Iterator[Scan]:
        shard, path = _Shard(part.file, bodies), posixpath.join(self.base, part.file)
        begun = end = size = 0
        try:
            with SteadyFile(self.filesystem, path) as file:
                size = file.length
                window = Window(file, size)
                for member in members(window, part.file, shard.failures):
                    stem = posixpath.splitext(member.name)[0]
                    if stem != shard.stem and shard.is_enough():
                        yield shard.take((member.start - begun) / size)
                        begun = member.start
                    shard.add(member, stem, window)
                    end = member.start + member.size
        except (OSError, pa.ArrowException) as error:
            shard.failures.append(Failure(part.file, Stage.READ, read_error(error), REST))
        whole = not shard.failures or shard.failures[-1].share != REST
        yield shard.take(((size if whole else end) - begun) / max(1, size))

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
    first = ranges[0][1]
    end = ranges[-1][1] + ranges[-1][2]
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
    shard_format(
        "webdataset",
        "WebDataset shards: .tar files in which `name.jpg` has `name.cls` or `name.json` beside it",
        ".tar",
        TarReader,
    )
)
