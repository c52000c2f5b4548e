"""Named arrays in safetensors files, local or on an object store; nothing is ever unpickled."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from safetensors import SafetensorError
from safetensors.numpy import load

from ghost_ray.errors import Damaged, InputError, one_line, redact
from ghost_ray.files import kind_of, name_of, output_file, reaching, read_bytes
from ghost_ray.files.digests import Digest, HashingFile, require_same

_MAX_BYTES = 64 << 30
_NAMES = {"f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "u1": "U8", "b1": "BOOL"}


def read_tensors(where: str, field: str, shown: str, written: Digest | None = None) -> dict[str, np.ndarray]:
    """Read a safetensors file; a missing or malformed one is an InputError naming it.

    ``written`` is the digest in the manifest, if it has one: other bytes are refused.
    """
    name = name_of(where)
    with reaching(shown, field):
        if kind_of(where) != "file":
            raise InputError(field, redact(shown), f"{name} is missing", "make the folder again")
        try:
            data = read_bytes(where, limit=_MAX_BYTES)
            if written is not None:
                require_same(data, written)
        except ValueError as error:
            raise Damaged(field, redact(shown), f"{name} {one_line(error)}", "make the folder again") from None
    try:
        return load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(field, redact(shown), f"{name}: {one_line(error)}", "make the folder again") from None


@dataclass(frozen=True)
class Blocks:
    """An array that is made while it is written, some rows at a time."""

    shape: tuple[int, ...]
    dtype: np.dtype
    blocks: Iterable[np.ndarray]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize


def can_hold(array: np.ndarray) -> bool:
    """Whether a file can hold an array of this type."""
    return array.dtype.str.lstrip("<|") in _NAMES


def write_tensors(where: str, tensors: Mapping[str, np.ndarray | Blocks]) -> Digest:
    """Write arrays as one safetensors file, in one step and without a second copy of them in memory."""
    # The widest types first, so that every array begins at a multiple of its item size.
    arrays = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header, offset = {}, 0
    for name, value in arrays:
        header[name] = {
            "dtype": _NAMES[value.dtype.str.lstrip("<|")],
            "shape": value.shape,
            "data_offsets": [offset, offset + value.nbytes],
        }
        offset += value.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with output_file(where, overwrite=True) as handle:
        file = HashingFile(handle)
        file.write(struct.pack("<Q", len(text)) + text)
        for _, value in arrays:
            for block in value.blocks if isinstance(value, Blocks) else [value]:
                file.write(pa.py_buffer(np.ascontiguousarray(block)))
    return file.digest()
