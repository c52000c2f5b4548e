"""PyTorch files as weights only: tensors, numbers, strings and containers of them, and never an object of a class."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import warnings
import zipfile
from typing import Any

from ghost_ray.errors import one_line

_FOREIGN_CLASS = re.compile(r"GLOBAL (\S+)")


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
