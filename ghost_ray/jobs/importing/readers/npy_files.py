"""NumPy's own files: .npy, and .npz archives of them."""

from __future__ import annotations

import io
import math
import struct
import zipfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from ghost_ray.jobs.importing.readers.array_file import ArrayFile, Entry, reads
from ghost_ray.jobs.importing.workspace import Workspace

_COPY_BYTES = 8 << 20
_MAX_HEADER_BYTES = 64 << 10  # NumPy itself takes no more than 10,000
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # of a zip member: signature, …, lengths of its name and extra field


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    bytes: int  # of the header itself


@reads("npy")
def _open_npy(uri: str, workspace: Workspace) -> ArrayFile:
    path = workspace.local(uri)
    with open(path, "rb") as handle:
        header = _header(handle)
    return ArrayFile("npy", [_entry("", header, path, 0, workspace)])


@reads("npz")
def _open_npz(uri: str, workspace: Workspace) -> ArrayFile:
    path = workspace.local(uri)
    entries = []
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as handle:
                header = _header(handle)
            if member.compress_type == zipfile.ZIP_STORED:
                entries.append(_entry(name, header, path, _start_of(member, path), workspace))
            else:
                entries.append(_packed_entry(name, header, path, member, workspace))
    return ArrayFile("npz", entries)


def _header(member: IO[bytes]) -> _Header:
    # NumPy reads as many bytes as the header says it has, and only then says that they are too many.
    handle = io.BytesIO(member.read(_MAX_HEADER_BYTES))
    version = np.lib.format.read_magic(handle)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(handle)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(handle)
    else:
        raise ValueError(f"has the format version {version}, which is not read")
    if dtype.hasobject:
        raise ValueError("holds Python objects, which are not loaded: they could run code")
    return _Header(shape, fortran, dtype, handle.tell())


def _entry(name: str, header: _Header, path: str, start: int, workspace: Workspace) -> Entry:
    def load() -> np.ndarray:
        return workspace.map(path, header.dtype, header.shape, start + header.bytes, fortran=header.fortran)

    return Entry(name, header.shape, str(header.dtype), load)


def _packed_entry(name: str, header: _Header, path: str, member: zipfile.ZipInfo, workspace: Workspace) -> Entry:
    needed = math.prod(header.shape) * header.dtype.itemsize

    def blocks() -> Iterator[bytes]:
        """What the header describes, and nothing after it."""
        left = needed
        with zipfile.ZipFile(path) as archive, archive.open(member) as handle:
            handle.read(header.bytes)
            while left > 0 and (block := handle.read(min(left, _COPY_BYTES))):
                left -= len(block)
                yield block

    def load() -> np.ndarray:
        if header.bytes + needed > member.file_size:
            raise ValueError(f"is truncated: {name} has {member.file_size:,} bytes, its header says {needed:,}")
        copy = workspace.spool_bytes(blocks())
        return workspace.map(copy, header.dtype, header.shape, fortran=header.fortran)

    return Entry(name, header.shape, str(header.dtype), load)


def _start_of(member: zipfile.ZipInfo, path: str) -> int:
    """Where the bytes of a stored member begin in its archive."""
    with open(path, "rb") as handle:
        handle.seek(member.header_offset)
        fields: tuple[Any, ...] = _LOCAL_HEADER.unpack(handle.read(_LOCAL_HEADER.size))
    return member.header_offset + _LOCAL_HEADER.size + int(fields[1]) + int(fields[2])
