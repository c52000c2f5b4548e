"""The members of a tar from its headers alone.

Python's `tarfile` stops at the first damaged header and takes three times as long per header. This reader knows ustar,
GNU long names and pax paths, which data sets use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ghost_ray.config.policies import Stage
from ghost_ray.sources.retry import SteadyFile
from ghost_ray.sources.source import REST, Failure, safe_key

BLOCK = 512
LOOK_AHEAD = 32 << 10  # header, label and next header usually arrive with one request
_MOST_AHEAD = 4 << 20
MAX_SIDECAR = 1 << 20  # labels and long names larger than this are not read
_LENGTH_DIGITS = len(str(MAX_SIDECAR))  # a record is not longer than the header it is in
_SIZE_DIGITS = 20
_REGULAR = (b"0", b"\0", b"7")
_GNU_LONG_NAME, _PAX = b"L", b"x"


class Member(NamedTuple):
    """A regular file in a tar."""

    name: str  # made safe: it is a key, never a path
    start: int  # of its bytes
    size: int


@dataclass
class Window:
    """Reads at increasing offsets; one request serves many reads, and no byte is requested twice.

    Reads that follow each other closely make the requests larger, up to `_MOST_AHEAD`; a jump makes them small again.
    """

    handle: SteadyFile
    length: int
    _offset: int = 0
    _held: bytes = field(default=b"", repr=False)
    _ahead: int = LOOK_AHEAD

    def read(self, offset: int, count: int) -> bytes:
        end = self._offset + len(self._held)
        if not self._offset <= offset <= end:
            near = 0 <= offset - end <= LOOK_AHEAD
            self._ahead = self._ahead if near else LOOK_AHEAD
            self._offset, self._held, end = offset, b"", offset
        missing = offset + count - end
        if missing > 0:
            wanted = max(missing, self._ahead)
            self._held = self._held[offset - self._offset :] + self.handle.read_at(wanted, end)
            self._offset = offset
            self._ahead = min(2 * self._ahead, _MOST_AHEAD)
        at = offset - self._offset
        return self._held[at : at + count]


def members(window: Window, file: str, failures: list[Failure]) -> Iterator[Member]:
    """Regular files of the tar. Damage is noted once; reading continues at the next valid header."""
    offset = 0
    long_name: bytes | None = None
    long_size: int | None = None
    while offset + BLOCK <= window.length:
        block = window.read(offset, BLOCK)
        if not block.strip(b"\0"):
            return
        header = _header(block)
        if header is None:
            problem = "a damaged header; everything after it, up to the next valid header, is lost"
            damaged, offset = offset, _next_header(window, offset + BLOCK)
            share = REST if offset >= window.length else (offset - damaged) / window.length
            failures.append(Failure(f"{file}/@{damaged}", Stage.READ, problem, share))
            if share == REST:
                return
            long_name = long_size = None
            continue
        name, size, kind = header
        if kind in _REGULAR:
            name, size = long_name or name, size if long_size is None else long_size
        start = offset + BLOCK
        if start + size > window.length:
            problem = "the tar ends inside this member; anything after it is lost"
            failures.append(Failure(f"{file}/{_safe_name(name)}", Stage.READ, problem, REST))
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
    problem = "the tar has no end mark; anything after its last member is lost"
    failures.append(Failure(file, Stage.READ, problem, REST))


def _header(block: bytes) -> tuple[bytes, int, bytes] | None:
    """Name, size and type of a header block, or None if its checksum or its numbers are wrong."""
    try:
        # The checksum is taken with its own eight bytes as blanks.
        if sum(block) - sum(block[148:156]) + 8 * ord(" ") != _number(block[148:156]):
            return None
        size = _number(block[124:136])
    except ValueError:
        return None
    if size < 0:  # Python reads a sign where tar has none
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
    """The first block from `offset` on that is a valid header, or the file's length."""
    while offset + BLOCK <= window.length:
        block = window.read(offset, BLOCK)
        if block[257:262] == b"ustar" and _header(block) is not None:
            return offset
        offset += BLOCK
    return window.length


def _pax(body: bytes) -> tuple[bytes | None, int | None]:
    """Path and size from a pax header: records ``length keyword=value newline``."""
    name, size, at = None, None, 0
    while at < len(body):
        digits = body[at : at + _LENGTH_DIGITS].partition(b" ")[0]
        length = int(digits) if digits.isdigit() else 0
        if not length:
            break
        keyword, _, value = body[at + len(digits) + 1 : at + length - 1].partition(b"=")
        if keyword == b"path":
            name = value
        elif keyword == b"size" and value.isdigit():
            # No file is longer than the number of so many digits, and Python refuses those of thousands.
            size = int(value.lstrip(b"0")[:_SIZE_DIGITS] or b"0")
        at += length
    return name, size


def _safe_name(name: bytes) -> str:
    # Names in tars are bytes, Arrow strings are UTF-8.
    return safe_key(name.decode("utf-8", "backslashreplace"))
