"""torchvision's classifiers by name, with the weights and the preprocessing that torchvision publishes together."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import Any

from torch import nn

from ghost_ray.backbone.weights import NothingLarger, State, fit_state, read_state
from ghost_ray.errors import InputError, nearest, one_line

PREFIX = "torchvision:"

# DenseNet's published files are older than the rule that names of modules have no dots.
_OLD_DENSENET = re.compile(r"(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\..*)")


def build_torchvision(entry: str, weights: str | None, name: str) -> nn.Module:
    """The network of an entry ``torchvision:NAME`` or ``torchvision:NAME:WEIGHTS``, with its `transform` as attribute.

    Without WEIGHTS, those that torchvision calls the default. A file in `weights` takes their place; the
    preprocessing stays that of the published ones. `name` is what the user calls the network.
    """
    architecture, published = _parse(entry)
    state = read_state(weights) if weights is not None else _downloaded(name, published)
    state = {_OLD_DENSENET.sub(r"\1\2", key): value for key, value in state.items()}
    path = weights or published.url
    with NothingLarger(state, path):
        model = _empty(architecture, published, state)
    fit_state(model, state, path)
    model.transform = published.transforms()
    return model


def torchvision_accuracy(entry: str) -> float | None:
    """Top-1 accuracy on ImageNet's validation set that torchvision states for the weights, as a fraction."""
    figures: dict[str, dict[str, float]] = _parse(entry)[1].meta.get("_metrics", {})
    accuracy = figures.get("ImageNet-1K", {}).get("acc@1")
    return None if accuracy is None else accuracy / 100


def _parse(entry: str) -> tuple[str, Any]:
    """Architecture and entry of torchvision's enumeration of its weights."""
    from torchvision import models

    architecture, _, tag = entry.removeprefix(PREFIX).partition(":")
    known = models.list_models(module=models)
    if architecture not in known:
        hint = nearest(architecture, known) or "torchvision.models.list_models() names them all"
        raise InputError("model", entry, "is not a classifier of torchvision", hint)
    published: Any = models.get_model_weights(architecture)
    if not tag:
        return architecture, published.DEFAULT
    if tag not in published.__members__:
        allowed = ", ".join(published.__members__)
        raise InputError("model", entry, f"torchvision has no weights {tag!r} for {architecture}", f"one of {allowed}")
    return architecture, published[tag]


def _downloaded(name: str, published: Any) -> State:
    try:
        # Its download message would appear in the middle of a command's output.
        with contextlib.redirect_stdout(sys.stderr):
            state: State = published.get_state_dict(
                progress=False, check_hash=True, weights_only=True, map_location="cpu"
            )
    except Exception as error:  # sockets, HTTP, hashes, disks and damaged caches each have their own types
        problem = f"its published weights cannot be loaded: {one_line(error, 160)}"
        raise InputError("model", name, problem, f"`weights=FILE` with a copy of {published.url}") from error
    return state


def _empty(architecture: str, published: Any, state: State) -> nn.Module:
    """The architecture as these weights were trained in it, with as many classes as the file has."""
    from torchvision import models

    options: dict[str, Any] = {}
    if architecture in ("googlenet", "inception_v3"):
        auxiliary = any(key.lower().startswith("aux") for key in state)
        options = {"transform_input": True, "aux_logits": auxiliary, "init_weights": False}
    elif architecture.startswith("vit_"):
        options = {"image_size": published.meta["min_size"][0]}
    model: nn.Module = models.get_model(architecture, weights=None, **options)
    linear = [key for key, module in model.named_modules() if isinstance(module, nn.Linear)]
    last = state.get(f"{linear[-1]}.weight") if linear else None
    if last is None or last.shape[0] == model.get_submodule(linear[-1]).out_features:
        return model
    other: nn.Module = models.get_model(architecture, weights=None, num_classes=len(last), **options)
    return other
