"""Named arrays in safetensors files, local or on an object store; nothing is ever unpickled."""

from __future__ import annotations

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ghost_ray.errors import InputError, one_line
from ghost_ray.files import kind_of, read_bytes, redact, write_bytes

_MAX_BYTES = 64 << 30


def read_tensors(where: str, field: str, shown: str) -> dict[str, np.ndarray]:
    """Read a safetensors file; a missing or malformed one is an InputError naming it."""
    name = where.rsplit("/", 1)[-1]
    if kind_of(where) != "file":
        raise InputError(field, redact(shown), f"{name} is missing", "make the folder again")
    try:
        return load(read_bytes(where, limit=_MAX_BYTES))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(field, redact(shown), f"{name}: {one_line(error)}", "make the folder again") from None


def write_tensors(where: str, tensors: dict[str, np.ndarray]) -> None:
    """Write arrays as one safetensors file, in one step."""
    write_bytes(where, save({name: np.ascontiguousarray(value) for name, value in tensors.items()}))
