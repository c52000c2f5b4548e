"""Recognises a weights file by its content: suffixes are not reliable, and torch takes a second to import."""

from __future__ import annotations

import os
from typing import Literal

from ghost_ray.errors import InputError, one_line, redact
from ghost_ray.files.contents import DESCRIPTIONS, recognise
from ghost_ray.files.copies import local_copy

CheckpointKind = Literal["safetensors", "torch", "torch-legacy"]
_READABLE = "a checkpoint of PyTorch (.pth, .pt, .th, .ckpt, .bin, .pth.tar) or .safetensors"


def checkpoint_kind(uri: str, field: str = "weights") -> CheckpointKind:
    """What kind of checkpoint a file is; InputError says what it is instead. A remote file is downloaded first."""
    path = local_copy(uri, field)
    if not os.path.isfile(path):
        problem = "is a folder" if os.path.isdir(path) else "does not exist"
        raise InputError(field, redact(uri), problem, f"a file, local or on an object store: {_READABLE}")
    try:
        content = recognise(path)
    except OSError as error:
        raise InputError(field, redact(uri), f"cannot be read: {one_line(error)}") from None
    if content not in ("safetensors", "torch", "torch-legacy"):
        raise InputError(field, redact(uri), f"is {DESCRIPTIONS[content]}, which holds no weights", _READABLE)
    return content
