"""From the name a user gives to a module with weights in it."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import socket
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import torch

from ghost_ray.backbone.presets import PRESETS, Preset
from ghost_ray.backbone.weights import classes_in, fit_state, read_state
from ghost_ray.errors import InputError, nearest, one_line

_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_HUBS = ("hf-hub:", "hf_hub:", "local-dir:")


def build(name: str, weights: str | None) -> torch.nn.Module:
    """The module `name` stands for, in evaluation mode on the CPU, with its weights loaded."""
    if _FACTORY.fullmatch(name) and not name.startswith(_HUBS):
        model = _from_factory(name)
        if weights is not None:
            fit_state(model, read_state(weights), weights)
    else:
        model = _from_timm(name, weights)
    return model.eval().requires_grad_(False)


def _from_timm(name: str, weights: str | None) -> torch.nn.Module:
    preset = PRESETS.get(name) or Preset(name)
    if not preset.architecture.startswith(_HUBS):
        _check_name(name, preset)
    if weights is None:
        return _pretrained(name, preset)
    state = read_state(weights)
    options = dict(preset.options)
    classes = classes_in(state, _classifier_name(preset.architecture))
    if classes is not None:
        options["num_classes"] = classes
    if "fc_norm.weight" in state and "norm.weight" not in state:
        options.setdefault("global_pool", "avg")
    model = _create(name, preset.architecture, pretrained=False, **options)
    fit_state(model, state, weights)
    return model


def _check_name(name: str, preset: Preset) -> None:
    import timm
    from timm.models import get_pretrained_cfg

    architecture, _, tag = preset.architecture.partition(".")
    if not timm.is_model(architecture):
        hint = nearest(name, [*timm.list_models(), *PRESETS]) or "timm.list_models() names them all"
        allowed = "a timm name, hf-hub:…, package.module:factory or one of " + ", ".join(PRESETS)
        raise InputError("--model", name, f"is no network known here ({allowed})", hint)
    try:
        get_pretrained_cfg(preset.architecture)
    except RuntimeError as error:
        hint = nearest(name, timm.list_pretrained(f"{architecture}.*")) or f"--model {architecture}"
        raise InputError("--model", name, f"timm knows no weights {tag!r} for {architecture}", hint) from error


def _pretrained(name: str, preset: Preset) -> torch.nn.Module:
    if preset.published:
        raise InputError("--model", name, "has no fine-tuned weights on timm's hub", f"--weights {preset.published}")
    return _create(name, preset.architecture, pretrained=True, **preset.options)


@contextlib.contextmanager
def _cache_only_without_network() -> Iterator[None]:
    """Spare a machine without a way to the hub its minute of retries; what is cached is found either way."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    if not urllib.request.getproxies():
        try:
            socket.getaddrinfo(urllib.parse.urlsplit(constants.ENDPOINT).hostname, 443)
        except OSError:
            constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _create(name: str, architecture: str, **options: Any) -> torch.nn.Module:
    import timm

    try:
        with _cache_only_without_network():
            return timm.create_model(architecture, **options)
    except Exception as error:  # hub clients, sockets, caches and architectures each have their own types
        wanted = "its published weights cannot be had" if options["pretrained"] else "it cannot be built"
        problem = f"{wanted}: {one_line(error, 160)}"
        raise InputError("--model", name, problem, "pass --weights FILE with a local copy") from error


def _classifier_name(architecture: str) -> object:
    from timm.models import get_pretrained_cfg

    if architecture.startswith(_HUBS):
        return None
    config = get_pretrained_cfg(architecture, allow_unregistered=True)
    return config.classifier if config is not None else None


def _from_factory(name: str) -> torch.nn.Module:
    module_name, _, attribute = name.partition(":")
    # `python -m` and console scripts do not both put the working folder on the path; a user's file lies there.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
        model = found()
    except Exception as error:  # a user's own code may raise anything
        problem = f"the factory failed: {type(error).__name__}: {one_line(error, 160)}"
        raise InputError("--model", name, problem, "package.module:factory, callable without arguments") from error
    if not isinstance(model, torch.nn.Module):
        raise InputError("--model", name, f"the factory returned a {type(model).__name__}, not a torch.nn.Module")
    return model
