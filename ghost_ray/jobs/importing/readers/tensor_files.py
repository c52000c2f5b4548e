"""PyTorch files (.pt, .pth and other names): a tensor, or containers of tensors, loaded as weights only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ghost_ray.files.file_types import load_torch_file, recognise
from ghost_ray.jobs.importing.readers.array_file import ArrayFile, Entry, reads
from ghost_ray.jobs.importing.workspace import Workspace

_MAX_DEPTH = 8
_NUMBERS_AT_A_TIME = 1 << 20


@reads("torch", "torch-legacy")
def _open_torch(uri: str, workspace: Workspace) -> ArrayFile:
    path = workspace.local(uri)
    content = load_torch_file(path, mapped=recognise(path) == "torch")
    return ArrayFile("torch", _entries("", content, workspace, _MAX_DEPTH))


def _entries(name: str, value: Any, workspace: Workspace, depth: int) -> Iterator[Entry]:
    """The tensors in a value; names of containers and of what is in them are joined by dots."""
    import torch

    if isinstance(value, torch.Tensor):
        yield Entry(
            name, tuple(value.shape), str(value.dtype).removeprefix("torch."), lambda: _array(name, value, workspace)
        )
    elif isinstance(value, list | tuple) and value and all(isinstance(item, str | int | float) for item in value):
        column = np.asarray(value)
        yield Entry(name, column.shape, "text" if column.dtype.kind == "U" else str(column.dtype), lambda: column)
    elif isinstance(value, dict | list | tuple) and depth:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _entries(f"{name}.{key}" if name else str(key), item, workspace, depth - 1)


def _array(name: str, tensor: Any, workspace: Workspace) -> np.ndarray:
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_complex():
        raise ValueError(f"{name or 'its tensor'} is {tensor.layout} {tensor.dtype}, expected plain real numbers")
    tensor = tensor.detach()
    try:
        array: np.ndarray = tensor.numpy()
        return array
    except TypeError:  # bfloat16 and the like, which numpy does not have
        pass
    step = max(1, _NUMBERS_AT_A_TIME // max(1, tensor[:1].numel()))
    blocks = (tensor[start : start + step].float().numpy() for start in range(0, len(tensor), step))
    return workspace.spool(blocks, tuple(tensor.shape[1:]), np.dtype(np.float32))
