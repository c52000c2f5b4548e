"""An image format as its author adds it: one file, one entry. Images are lines ``name label hexadecimal``."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from ghost_ray.sources import (
    Image,
    ImageFormat,
    Scan,
    Shard,
    container_format,
    make_items,
    read_bytes,
    register,
    runs_of_one_file,
    unregister,
)

SUFFIX = ".toy"


def lines(filesystem: fs.FileSystem, base: str, file: str) -> list[list[str]]:
    return [line.split() for line in read_bytes(filesystem, posixpath.join(base, file)).decode().splitlines()]


@dataclass(frozen=True)
class ToyReader:
    filesystem: fs.FileSystem
    base: str

    def scan(self, shard: Shard, bodies: bool = False) -> Iterator[Scan]:
        found = lines(self.filesystem, self.base, shard.file)
        keys, labels = [f"{shard.file}/{name}" for name, _, _ in found], [label for _, label, _ in found]
        yield Scan(make_items(keys, [shard.file] * len(found), labels, starts=range(len(found))))

    def read(self, items: pa.Table) -> Iterator[Image]:
        for file, run in runs_of_one_file(items):
            found = lines(self.filesystem, self.base, file)
            for key, start in zip(run["key"].to_pylist(), run["start"].to_pylist(), strict=True):
                yield Image(key, bytes.fromhex(found[start][2]), None)


TOY = container_format("toy", "toy files: one line of `name label hexadecimal` per image", SUFFIX, ToyReader)


@contextmanager
def added() -> Iterator[ImageFormat]:
    """The format, for a while."""
    register(TOY)
    try:
        yield TOY
    finally:
        unregister(TOY.name)
