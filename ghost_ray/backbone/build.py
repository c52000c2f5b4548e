"""From the name a user gives to a module with weights in it."""

from __future__ import annotations

import contextlib
import socket
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ghost_ray.backbone.presets import PRESETS, Preset
from ghost_ray.backbone.torchvision_models import PREFIX, build_torchvision
from ghost_ray.backbone.weights import NothingLarger, classes_in, fit_state, read_state
from ghost_ray.errors import InputError, nearest, one_line, redact
from ghost_ray.plugins import Plugin, import_object, is_importable, plugins

_HUBS = ("hf-hub:", "hf_hub:", "local-dir:")


def build(name: str, weights: str | None) -> torch.nn.Module:
    """The module `name` stands for, in evaluation mode on the CPU, with its weights loaded."""
    preset = PRESETS.get(name) or Preset(name)
    added = _added()
    if preset.architecture.startswith(PREFIX):
        model = build_torchvision(preset.architecture, weights, name)
    elif is_importable(name) and not name.startswith(_HUBS):
        model = _own(name, lambda: import_object(name), weights)
    elif name in added:
        model = _own(name, _plugin_factory(added[name]), weights)
    else:
        model = _from_timm(name, preset, weights)
    return model.eval().requires_grad_(False)


def name_from_manifest(name: str, place: str) -> str:
    """The network that the manifest in ``place`` names, if building it runs no code but that of timm and torchvision.

    A folder may come from anyone, and reading a result must not import or open what it names: such a name is for the
    caller to give.
    """
    import timm
    from torchvision import models

    library, _, rest = name.partition(":")
    if f"{library}:" == PREFIX:
        known = rest.partition(":")[0] in models.list_models(module=models)
    else:
        known = name in PRESETS or (":" not in name and timm.is_model(name.partition(".")[0]))
    if not known:
        raise InputError(
            "network",
            name,
            f"is named by the manifest of {redact(place)} and is no network of timm, torchvision or the presets: "
            "a manifest does not decide which code runs",
            "if you trust it, give `network=NAME` yourself",
        )
    return name


def _added() -> dict[str, Plugin]:
    """The networks of installed packages."""
    return {plugin.name: plugin for plugin in plugins("networks")}


def _from_timm(name: str, preset: Preset, weights: str | None) -> torch.nn.Module:
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
    with NothingLarger(state, weights):
        model = _create(name, preset.architecture, pretrained=False, **options)
    fit_state(model, state, weights)
    return model


def _check_name(name: str, preset: Preset) -> None:
    import timm
    from timm.models import get_pretrained_cfg

    architecture, _, tag = preset.architecture.partition(".")
    if not timm.is_model(architecture):
        hint = nearest(name, [*timm.list_models(), *PRESETS, *_added()]) or "timm.list_models() names them all"
        allowed = (
            f"a timm name, {PREFIX}NAME, hf-hub:…, package.module:factory or one of {', '.join([*PRESETS, *_added()])}"
        )
        raise InputError("model", name, f"is not a known network ({allowed})", hint)
    try:
        get_pretrained_cfg(preset.architecture)
    except RuntimeError as error:
        hint = nearest(name, timm.list_pretrained(f"{architecture}.*")) or f"`model={architecture}`"
        raise InputError("model", name, f"timm knows no weights {tag!r} for {architecture}", hint) from error


def _pretrained(name: str, preset: Preset) -> torch.nn.Module:
    if preset.published:
        raise InputError("model", name, "has no fine-tuned weights on timm's hub", f"`weights`: {preset.published}")
    return _create(name, preset.architecture, pretrained=True, **preset.options)


@contextlib.contextmanager
def _cache_only_without_network() -> Iterator[None]:
    """Avoid a minute of retries on a machine that cannot reach the hub; cached files are found either way."""
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
    except InputError:
        raise
    except Exception as error:  # hub clients, sockets, caches and architectures each have their own types
        wanted = "its published weights cannot be loaded" if options["pretrained"] else "it cannot be built"
        problem = f"{wanted}: {one_line(error, 160)}"
        raise InputError("model", name, problem, "pass `weights=FILE` with a local copy") from error


def _classifier_name(architecture: str) -> object:
    from timm.models import get_pretrained_cfg

    if architecture.startswith(_HUBS):
        return None
    config = get_pretrained_cfg(architecture, allow_unregistered=True)
    return config.classifier if config is not None else None


def _own(name: str, find: Callable[[], Any], weights: str | None) -> torch.nn.Module:
    """A user's own network, from the factory that ``find`` gives."""
    try:
        model = find()()
    except Exception as error:  # a user's own code may raise anything
        problem = f"the factory failed: {type(error).__name__}: {one_line(error, 160)}"
        raise InputError("model", name, problem, "package.module:factory, callable without arguments") from error
    if not isinstance(model, torch.nn.Module):
        raise InputError("model", name, f"the factory returned a {type(model).__name__}, not a torch.nn.Module")
    if weights is not None:
        fit_state(model, read_state(weights), weights)
    return model


def _plugin_factory(plugin: Plugin) -> Callable[[], Any]:
    import timm

    if plugin.name in PRESETS or timm.is_model(plugin.name):
        owner = "a preset" if plugin.name in PRESETS else "a network of timm"
        raise InputError("model", plugin.name, f"is {owner} and a network of the package {plugin.package}")
    return plugin.load
