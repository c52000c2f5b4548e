"""What kind of file something is, by its content because suffixes may be wrong, and PyTorch files as weights only."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import os
import re
import struct
import warnings
import zipfile
from typing import Any, BinaryIO, Literal, cast

from ghost_ray.errors import InputError, one_line, redact
from ghost_ray.files.download_cache import local_copy
from ghost_ray.files.paths import open_input

Content = Literal[
    "npy", "npz", "torch", "torch-legacy", "torchscript", "safetensors", "parquet", "text",
    "empty", "lfs", "html", "json", "pickle", "hdf5", "arrow", "matlab", "gzip", "tar", "zip",
    "broken-zip", "image", "binary",
]  # fmt: skip

CheckpointKind = Literal["safetensors", "torch", "torch-legacy"]
_CHECKPOINTS = "a checkpoint of PyTorch (.pth, .pt, .th, .ckpt, .bin, .pth.tar) or .safetensors"

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
_FOREIGN_CLASS = re.compile(r"GLOBAL (\S+)")


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


def checkpoint_kind(uri: str, field: str = "weights") -> CheckpointKind:
    """What kind of checkpoint a file is; InputError says what it is instead. A remote file is downloaded first."""
    path = local_copy(uri, field)
    if not os.path.isfile(path):
        problem = "is a folder" if os.path.isdir(path) else "does not exist"
        raise InputError(field, redact(uri), problem, f"a file, local or on an object store: {_CHECKPOINTS}")
    try:
        content = recognise(path)
    except OSError as error:
        raise InputError(field, redact(uri), f"cannot be read: {one_line(error)}") from None
    if content not in ("safetensors", "torch", "torch-legacy"):
        raise InputError(field, redact(uri), f"is {DESCRIPTIONS[content]}, which holds no weights", _CHECKPOINTS)
    return content


def load_torch_file(path: str, *, mapped: bool = False) -> Any:
    """What a local PyTorch file holds; ValueError says in one line why it is not loaded.

    Parameters
    ----------
    mapped : bool
        Leave the tensors' numbers on disk until they are used. Files of the old format cannot be mapped.
    """
    import torch

    size = os.path.getsize(path)
    _refuse_packed(path, size)
    try:
        # Given a path, torch lets the suffix decide the format.
        with warnings.catch_warnings(), contextlib.nullcontext(path) if mapped else open(path, "rb") as source:
            warnings.simplefilter("ignore")  # about formats; what matters becomes the error
            # What training scripts keep their options in; making one runs no code.
            with torch.serialization.safe_globals([argparse.Namespace]):
                content = torch.load(source, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # a damaged file raises one of a dozen types, none of them documented
        raise ValueError(_reason(str(error))) from None
    _refuse_claims(content, size)
    return content


def _refuse_packed(path: str, size: int) -> None:
    """Refuse an archive with more in it than its own bytes: packed 1000:1, or the same ones several times."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        return  # of the old format, or damaged in a way that torch describes
    if unpacked > size:
        raise ValueError(f"is packed: {unpacked:,} bytes in a file of {size:,}; save it again with torch.save")


def _refuse_claims(content: Any, size: int) -> None:
    """Refuse a tensor with more numbers than the file: one that is repeated by a stride of 0, or never was in it."""
    import torch

    waiting, seen = [content], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            claimed = value.numel() * value.element_size()
            if claimed > min(size, value.untyped_storage().nbytes()):
                shape = "×".join(map(str, value.shape))
                raise ValueError(
                    f"a tensor of {shape} {value.dtype} needs {claimed:,} bytes, and they are not in the file"
                )
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))  # a container can hold itself
            waiting += value.values() if isinstance(value, dict) else value


def _reason(text: str) -> str:
    """Torch's long message, reduced to what was found."""
    foreign = _FOREIGN_CLASS.search(text)
    if foreign:
        return f"holds an object of {foreign[1]}; only tensors, numbers and strings are loaded, never code"
    found = text.partition("WeightsUnpickler error:")[2].partition("Check the documentation")[0]
    return f"cannot be read as weights alone: {one_line(found or text, 160)}"
