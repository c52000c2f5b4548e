"""PyTorch files as weights only: tensors, numbers, strings and containers of them, and never an object of a class."""

from __future__ import annotations

import argparse
import contextlib
import re
import warnings
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

    try:
        # Given a path, torch lets the suffix decide the format.
        with warnings.catch_warnings(), contextlib.nullcontext(path) if mapped else open(path, "rb") as source:
            warnings.simplefilter("ignore")  # about formats; what matters becomes the error
            # What training scripts keep their options in; making one runs no code.
            with torch.serialization.safe_globals([argparse.Namespace]):
                return torch.load(source, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # a damaged file raises one of a dozen types, none of them documented
        raise ValueError(_reason(str(error))) from None


def _reason(text: str) -> str:
    """Torch's long message, reduced to what was found."""
    foreign = _FOREIGN_CLASS.search(text)
    if foreign:
        return f"holds an object of {foreign[1]}; only tensors, numbers and strings are loaded, never code"
    found = text.partition("WeightsUnpickler error:")[2].partition("Check the documentation")[0]
    return f"cannot be read as weights alone: {one_line(found or text, 160)}"
