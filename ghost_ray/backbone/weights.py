"""Weights from a file, without unpickling anything, and the fingerprint that names them."""

from __future__ import annotations

import hashlib
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from safetensors.torch import load_file
from torch.overrides import TorchFunctionMode

from ghost_ray.errors import InputError, one_line
from ghost_ray.files.download_cache import local_copy
from ghost_ray.files.file_types import checkpoint_kind, load_torch_file

_WRAPPERS = re.compile(r"^(?:_orig_mod\.)?(?:module\.)?(?:_orig_mod\.)?")  # of torch.compile and distributed training
_NESTED = ("state_dict_ema", "model_ema", "state_dict", "model")
State = dict[str, torch.Tensor]


def read_state(uri: str) -> State:
    """The state dict in a checkpoint of PyTorch or of safetensors, whatever the file is called.

    A remote file is fetched once per machine.

    A dict nested under ``state_dict_ema``, ``model_ema``, ``state_dict`` or ``model`` (in that order, timm's) is
    taken out, and the prefixes of distributed training and of `torch.compile` are stripped.
    """
    kind, path = checkpoint_kind(uri), local_copy(uri, "weights")
    try:
        whole: Any = load_file(path) if kind == "safetensors" else load_torch_file(path)
        nested = [whole[name] for name in _NESTED if isinstance(whole.get(name), dict)]
        state: State = {_WRAPPERS.sub("", name): value for name, value in (nested[0] if nested else whole).items()}
    except Exception as error:  # a damaged file raises one of a dozen types, none of them documented
        raise InputError("weights", uri, one_line(error, 200), "save the state dict as .safetensors") from error
    others = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if others or not state:
        found = f"holds {others[0]!r}, which is not a tensor" if others else "holds no tensor"
        hint = "a state dict, alone or under 'model', 'state_dict' or 'model_ema'"
        raise InputError("weights", uri, found, hint)
    return state


# Below it, a network has tensors that are in no file: masks, tables of positions.
_ALWAYS_ALLOWED = 1 << 26


class NothingLarger(TorchFunctionMode):
    """A block in which no tensor is made that is larger than all those of a file: it could not be filled from it.

    The number of classes comes from the file, and the network multiplies it by its own dimensions.
    """

    def __init__(self, state: Mapping[str, torch.Tensor], path: str) -> None:
        super().__init__()
        self._path = path
        self._limit = max([_ALWAYS_ALLOWED, *(value.numel() for value in state.values())])

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.empty:
            sizes = kwargs["size"] if kwargs and "size" in kwargs else args[0] if len(args) == 1 else args
            count = math.prod(sizes) if isinstance(sizes, Sequence) else sizes
            if count > self._limit:
                shape = "×".join(map(str, sizes))
                problem = f"asks for a layer of {shape} numbers, and they are not in it"
                raise InputError("weights", self._path, problem, "is `model` the right one?")
        return function(*args, **(kwargs or {}))


def classes_in(state: Mapping[str, torch.Tensor], classifier: object) -> int | None:
    """Rows of the last layer in a state dict: by the network's name for it, or by the common names."""
    own_names = classifier if isinstance(classifier, tuple) else (classifier,)
    for name in (*own_names, "head.fc", "head", "fc", "classifier"):
        # A prefix comes from a larger module that contains the network.
        found = [value for key, value in state.items() if f".{key}".endswith(f".{name}.weight") and value.ndim > 1]
        if len(found) == 1:
            return int(found[0].shape[0])
    return None


def fit_state(model: torch.nn.Module, state: State, path: str) -> None:
    """Load every tensor, or refuse and say which do not fit.

    Checkpoints in their authors' own naming go through the renaming timm has for that network. It is not
    consulted for tensors of the wrong shape, since it would silently resample them for another image size.
    """
    own = model.state_dict()
    state = _without_prefix(state, own)
    reshaped = [
        f"{name} is {_shape(value)}, the network's {_shape(own[name])}"
        for name, value in state.items()
        if name in own and own[name].shape != value.shape
    ]
    if not reshaped and state.keys() != own.keys():
        rename = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
        if rename is not None:
            state = _renamed(rename, state, model)
    missing = [f"{name} is missing" for name in own.keys() - state.keys() if _is_needed(name)]
    foreign = [f"{name} is not in the network" for name in state.keys() - own.keys() if _is_needed(name)]
    misfits = reshaped or sorted(missing) + sorted(foreign)
    if misfits:
        shown = "; ".join(misfits[:4]) + (f"; and {len(misfits) - 4} more" if len(misfits) > 4 else "")
        raise InputError("weights", path, f"do not fit the network: {shown}", "is `model` the right one?")
    model.load_state_dict(state, strict=False)


def _without_prefix(state: State, own: Mapping[str, torch.Tensor]) -> State:
    """The state of a network that was a part of something larger, such as a Lightning module's ``model.``."""
    first = next(iter(own), "")
    for name in state:
        prefix = name.removesuffix(first)
        if prefix != name and prefix.endswith(".") and all(key.startswith(prefix) for key in state):
            return {key.removeprefix(prefix): value for key, value in state.items()}
    return state


def fingerprint(state: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 of the tensors, whatever file they came from.

    For each tensor, sorted by name, the hash covers name, dtype, shape and the SHA-256 of the row-major bytes. The same
    weights in `.pth` and `.safetensors` have the same fingerprint.
    """

    def digest(name: str) -> str:
        tensor = state[name].detach().cpu().contiguous()
        flat = tensor.reshape(-1).view(torch.uint8).numpy()
        return f"{name}\t{tensor.dtype}\t{list(tensor.shape)}\t{hashlib.sha256(flat.data).hexdigest()}\n"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        lines = pool.map(digest, sorted(state))
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def _renamed(rename: Callable[[State, torch.nn.Module], State], state: State, model: torch.nn.Module) -> State:
    try:
        return dict(rename(dict(state), model))
    except Exception:  # foreign names can break the renaming; the error then uses the file's own names
        return state


def _is_needed(name: str) -> bool:
    # Recomputed from the geometry or counting batches seen in training: absent from many published files.
    return not name.endswith(("num_batches_tracked", "relative_position_index", "attn_mask"))


def _shape(tensor: torch.Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a scalar"
