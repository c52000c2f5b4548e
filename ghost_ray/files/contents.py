"""Recognises the kind of a file by its content, because suffixes may be wrong."""

from __future__ import annotations

import codecs
import struct
import zipfile
from typing import BinaryIO, Literal, cast

from ghost_ray.files.paths import open_input

Content = Literal[
    "npy", "npz", "torch", "torch-legacy", "torchscript", "safetensors", "parquet", "text",
    "empty", "lfs", "html", "json", "pickle", "hdf5", "arrow", "matlab", "gzip", "tar", "zip",
    "broken-zip", "image", "binary",
]  # fmt: skip

# The phrase for each in a sentence: "is …".
DESCRIPTIONS: dict[Content, str] = {
    "npy": "a NumPy array (.npy)",
    "npz": "a NumPy archive (.npz)",
    "torch": "a PyTorch file",
    "torch-legacy": "a PyTorch file of the old format",
    "torchscript": "a TorchScript program",
    "safetensors": "a safetensors file",
    "parquet": "a Parquet file",
    "text": "a text file",
    "empty": "an empty file",
    "lfs": "a Git LFS pointer, not the file it stands for",
    "html": "an HTML page",
    "json": "a JSON file",
    "pickle": "a Python pickle",
    "hdf5": "an HDF5 file",
    "arrow": "an Arrow or Feather file",
    "matlab": "a MATLAB file",
    "gzip": "a gzip-compressed file",
    "tar": "a tar archive",
    "zip": "a zip archive",
    "broken-zip": "a truncated or damaged zip archive",
    "image": "an image",
    "binary": "a binary file of unknown type",
}

_TORCH_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_BEGINNINGS: tuple[tuple[bytes, Content], ...] = (
    (b"\x93NUMPY", "npy"),
    (b"PAR1", "parquet"),
    (_TORCH_MAGIC, "torch-legacy"),
    (b"\x89HDF\r\n\x1a\n", "hdf5"),
    (b"ARROW1", "arrow"),
    (b"FEA1", "arrow"),
    (b"MATLAB 5.0", "matlab"),
    (b"\x1f\x8b", "gzip"),
    (b"\x89PNG", "image"),
    (b"\xff\xd8\xff", "image"),
    (b"version https://git-lfs", "lfs"),
)
_HEAD_BYTES = 4096


def recognise(uri: str) -> Content:
    """The kind of a file, from its first bytes and, of a zip archive, the names in it; OSError if there is none."""
    with open_input(uri) as handle:
        head = bytes(handle.read(_HEAD_BYTES))
        if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            handle.seek(0)
            return _kind_of_zip(cast(BinaryIO, handle))
        return _kind_of_beginning(head, handle.size())


def _kind_of_beginning(head: bytes, size: int) -> Content:
    if not head:
        return "empty"
    for beginning, kind in _BEGINNINGS:
        if head.startswith(beginning):
            return kind
    if head[257:262] == b"ustar":
        return "tar"
    if len(head) > 8 and head[8:9] == b"{" and 8 + struct.unpack("<Q", head[:8])[0] <= size:
        return "safetensors"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "pickle"
    return _kind_of_text(head)


def _kind_of_text(head: bytes) -> Content:
    try:
        # The last character may be incomplete if the file continues.
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        text = decoder.decode(head, final=len(head) < _HEAD_BYTES)
    except UnicodeDecodeError:
        return "binary"
    if any(ord(sign) < 32 and sign not in "\t\n\r\f" for sign in text):
        return "binary"
    start = text.lstrip().lower()
    if start.startswith(("<!doctype html", "<html")):
        return "html"
    return "json" if start.startswith(("{", "[")) else "text"


def _kind_of_zip(handle: BinaryIO) -> Content:
    try:
        with zipfile.ZipFile(handle) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return "broken-zip"
    if any(name.endswith("/constants.pkl") for name in names):
        return "torchscript"
    if any(name.endswith("/data.pkl") for name in names):
        return "torch"
    return "npz" if names and all(name.endswith(".npy") for name in names) else "zip"
