"""Safetensors files: a header of JSON, and after it the arrays as they are."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from safetensors import safe_open

from ghost_ray.jobs.importing.readers.array_file import ArrayFile, Entry, reads
from ghost_ray.jobs.importing.workspace import Workspace

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
_BF16_ROWS = 1 << 20  # numbers converted at a time


@reads("safetensors")
def _open_safetensors(uri: str, workspace: Workspace) -> ArrayFile:
    path = workspace.local(uri)
    with safe_open(path, framework="numpy"):  # checks the header: every array within the file, none upon another
        pass
    with open(path, "rb") as handle:
        (length,) = struct.unpack("<Q", handle.read(8))
        header = json.loads(handle.read(length))
    tensors = {name: value for name, value in header.items() if name != "__metadata__"}
    return ArrayFile(
        "safetensors", [_entry(name, value, path, 8 + length, workspace) for name, value in tensors.items()]
    )


def _entry(name: str, described: dict[str, Any], path: str, data: int, workspace: Workspace) -> Entry:
    kind = str(described["dtype"])
    shape = tuple(int(size) for size in described["shape"])
    start = data + int(described["data_offsets"][0])

    def load() -> np.ndarray:
        if kind == "BF16":
            return _from_bf16(workspace.map(path, np.dtype("<u2"), shape, start), workspace)
        if kind not in _TYPES:
            raise ValueError(f"{name} is of type {kind}, which is not read")
        return workspace.map(path, np.dtype(_TYPES[kind]), shape, start)

    return Entry(name, shape, kind, load)


def _from_bf16(halves: np.ndarray, workspace: Workspace) -> np.ndarray:
    """The upper halves of float32 numbers as the numbers."""

    def blocks() -> Iterator[np.ndarray]:
        step = max(1, _BF16_ROWS // max(1, int(np.prod(halves.shape[1:]))))
        for start in range(0, len(halves), step):
            yield (halves[start : start + step].astype(np.uint32) << 16).view(np.float32)

    return workspace.spool(blocks(), halves.shape[1:], np.dtype(np.float32))
