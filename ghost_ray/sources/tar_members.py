"""The members of a tar from its headers alone.

Python's `tarfile` stops at the first rotten header and spends three times as long on each; this walk knows ustar,
GNU long names and pax paths, which is what data sets are packed with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from ghost_ray.sources.base import Failure, safe_key
from ghost_ray.sources.retry import retried

BLOCK = 512
LOOK_AHEAD = 32 << 10  # header, label and next header usually arrive with one request
MAX_SIDECAR = 1 << 20  # labels and long names larger than this are not read
_REGULAR = (b"0", b"\0", b"7")
_GNU_LONG_NAME, _PAX = b"L", b"x"


class Member(NamedTuple):
    """A regular file in a tar."""

    name: str  # made safe: it is a key, never a path
    start: int  # of its bytes
    size: int


@dataclass
class Window:
    """Small reads at increasing offsets, a few of them served by each request."""

    filesystem: fs.FileSystem
    handle: pa.NativeFile
    length: int
    _offset: int = 0
    _held: bytes = field(default=b"", repr=False)

    def read(self, offset: int, count: int) -> bytes:
        at = offset - self._offset
        if at < 0 or at + count > len(self._held):
            wanted = max(count, LOOK_AHEAD)
            self._held = retried(self.filesystem, lambda: self.handle.read_at(wanted, offset))
            self._offset, at = offset, 0
        return self._held[at : at + count]


def members(window: Window, file: str, failures: list[Failure]) -> Iterator[Member]:
    """Regular files of the tar. What is broken is noted once; the walk goes on at the next sound header."""
    offset = 0
    long_name: bytes | None = None
    long_size: int | None = None
    while offset + BLOCK <= window.length:
        block = window.read(offset, BLOCK)
        if not block.strip(b"\0"):
            return
        header = _header(block)
        if header is None:
            problem = "a rotten header; what follows it, up to the next sound one, is lost"
            failures.append(Failure(f"{file}/@{offset}", "read", problem))
            offset = _next_header(window, offset + BLOCK)
            if offset >= window.length:
                return
            long_name = long_size = None
            continue
        name, size, kind = header
        if kind in _REGULAR:
            name, size = long_name or name, size if long_size is None else long_size
        start = offset + BLOCK
        if start + size > window.length:
            problem = "the tar ends inside this member; what came after it is lost"
            failures.append(Failure(f"{file}/{_safe_name(name)}", "read", problem))
            return
        if kind == _GNU_LONG_NAME and size <= MAX_SIDECAR:
            long_name = window.read(start, size).rstrip(b"\0")
        elif kind == _PAX and size <= MAX_SIDECAR:
            long_name, long_size = _pax(window.read(start, size))
        else:
            long_name = long_size = None
            if kind in _REGULAR:
                yield Member(_safe_name(name), start, size)
        offset = start + -(-size // BLOCK) * BLOCK
    problem = "the tar has no end mark; what may have come after its last member is lost"
    failures.append(Failure(file, "read", problem))


def _header(block: bytes) -> tuple[bytes, int, bytes] | None:
    """Name, size and type of a header block, or None where its checksum or its numbers are wrong."""
    try:
        # The checksum is taken with its own eight bytes as blanks.
        if sum(block) - sum(block[148:156]) + 8 * ord(" ") != _number(block[148:156]):
            return None
        size = _number(block[124:136])
    except ValueError:
        return None
    name = block[:100].partition(b"\0")[0]
    if block[257:263] == b"ustar\0" and block[345]:
        name = block[345:500].partition(b"\0")[0] + b"/" + name
    return name, size, block[156:157]


def _number(digits: bytes) -> int:
    if digits[0] & 0x80:  # GNU's notation for what octal digits cannot hold
        return int.from_bytes(digits[1:], "big")
    return int(digits.strip(b"\0 ") or b"0", 8)


def _next_header(window: Window, offset: int) -> int:
    """The first block from `offset` on that is a sound header, or the file's length."""
    while offset + BLOCK <= window.length:
        block = window.read(offset, BLOCK)
        if block[257:262] == b"ustar" and _header(block) is not None:
            return offset
        offset += BLOCK
    return window.length


def _pax(body: bytes) -> tuple[bytes | None, int | None]:
    """Path and size from a pax header: records ``length keyword=value newline``."""
    name, size = None, None
    while body:
        digits = body.partition(b" ")[0]
        length = int(digits) if digits.isdigit() else 0
        if not length:
            break
        keyword, _, value = body[len(digits) + 1 : length - 1].partition(b"=")
        if keyword == b"path":
            name = value
        elif keyword == b"size" and value.isdigit():
            size = int(value)
        body = body[length:]
    return name, size


def _safe_name(name: bytes) -> str:
    # Names in tars are bytes, Arrow strings are UTF-8.
    return safe_key(name.decode("utf-8", "backslashreplace"))
