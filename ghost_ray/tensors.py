"""Named arrays in safetensors files, local or on an object store; nothing is ever unpickled."""

from __future__ import annotations

import json
import struct

import numpy as np
import pyarrow as pa
from safetensors import SafetensorError
from safetensors.numpy import load

from ghost_ray.errors import InputError, one_line
from ghost_ray.files import kind_of, name_of, output_file, read_bytes, redact

_MAX_BYTES = 64 << 30
_NAMES = {"f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "u1": "U8", "b1": "BOOL"}


def read_tensors(where: str, field: str, shown: str) -> dict[str, np.ndarray]:
    """Read a safetensors file; a missing or malformed one is an InputError naming it."""
    name = name_of(where)
    if kind_of(where) != "file":
        raise InputError(field, redact(shown), f"{name} is missing", "make the folder again")
    try:
        return load(read_bytes(where, limit=_MAX_BYTES))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(field, redact(shown), f"{name}: {one_line(error)}", "make the folder again") from None


def write_tensors(where: str, tensors: dict[str, np.ndarray]) -> None:
    """Write arrays as one safetensors file, in one step and without a second copy of them in memory."""
    # The widest types first, so that every array begins at a multiple of its item size.
    arrays = sorted(
        ((name, np.ascontiguousarray(value)) for name, value in tensors.items()),
        key=lambda item: (-item[1].itemsize, item[0]),
    )
    header, place = {}, 0
    for name, value in arrays:
        header[name] = {
            "dtype": _NAMES[value.dtype.str.lstrip("<|")],
            "shape": value.shape,
            "data_offsets": [place, place + value.nbytes],
        }
        place += value.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with output_file(where, overwrite=True) as handle:
        handle.write(struct.pack("<Q", len(text)) + text)
        for _, value in arrays:
            handle.write(pa.py_buffer(value))
