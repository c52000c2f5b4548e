"""From the name that a user gives to a module with its weights: presets, timm, torchvision, factories and plugins."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ghost_ray.backbone.weights import NothingLarger, State, classes_in, fit_state, read_state
from ghost_ray.errors import InputError, nearest, one_line, redact
from ghost_ray.plugins import Plugin, import_object, is_importable, plugins

_TORCHVISION = "torchvision:"
_HUBS = ("hf-hub:", "hf_hub:", "local-dir:")
# DenseNet's published files are older than the rule that names of modules have no dots.
_OLD_DENSENET = re.compile(r"(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\..*)")


@dataclass(frozen=True)
class Preset:
    """A network with the settings its published weights need."""

    architecture: str  # a timm name, tag included, or torchvision:NAME:WEIGHTS
    accuracy: float | None = None  # published: top-1 on ImageNet's validation set
    options: dict[str, Any] = field(default_factory=dict)  # further arguments of timm.create_model
    published: str = ""  # where the fine-tuned weights come from when timm's hub has none


# The fine-tuned MAE networks average the patch tokens and normalise afterwards (`fc_norm`), and are evaluated on
# a 224 crop of 256; timm's entry describes the pre-training, which has neither a head nor a crop of its own.
_MAE = {"global_pool": "avg", "pretrained_cfg_overlay": {"crop_pct": 224 / 256}}

# Accuracies: facebookresearch/mae (FINETUNE.md), facebookresearch/ConvNeXt-V2 (README.md), torchvision's own metadata.
PRESETS: dict[str, Preset] = {
    "mae-h": Preset("vit_huge_patch14_224.mae", 0.86928, _MAE, "mae_finetuned_vit_huge.pth of facebookresearch/mae"),
    "mae-b": Preset("vit_base_patch16_224.mae", 0.83664, _MAE, "mae_finetuned_vit_base.pth of facebookresearch/mae"),
    "convnextv2-h": Preset("convnextv2_huge.fcmae_ft_in1k", 0.863),
    "swin-t": Preset("torchvision:swin_t:IMAGENET1K_V1", 0.81474),
    "densenet-121": Preset("torchvision:densenet121:IMAGENET1K_V1", 0.74434),
    "vit-b-16": Preset("torchvision:vit_b_16:IMAGENET1K_V1", 0.81072),  # OpenOOD's
}


def published_accuracy(name: str) -> float | None:
    """Top-1 accuracy on ImageNet's validation set, stated for a preset or for weights of torchvision; a fraction."""
    if name in PRESETS:
        return PRESETS[name].accuracy
    if not name.startswith(_TORCHVISION):
        return None
    figures: dict[str, dict[str, float]] = _parse_torchvision(name)[1].meta.get("_metrics", {})
    accuracy = figures.get("ImageNet-1K", {}).get("acc@1")
    return None if accuracy is None else accuracy / 100


def build(name: str, weights: str | None) -> nn.Module:
    """The module `name` stands for, in evaluation mode on the CPU, with its weights loaded."""
    preset = PRESETS.get(name) or Preset(name)
    added = _added()
    if preset.architecture.startswith(_TORCHVISION):
        model = _from_torchvision(preset.architecture, weights, name)
    elif is_importable(name) and not name.startswith(_HUBS):
        model = _own(name, lambda: import_object(name), weights)
    elif name in added:
        model = _own(name, _plugin_factory(added[name]), weights)
    else:
        model = _from_timm(name, preset, weights)
    return model.eval().requires_grad_(False)


def name_from_manifest(name: str, place: str) -> str:
    """The network that the manifest in ``place`` names, if building it runs no code but that of timm and torchvision.

    A folder may come from anyone, and reading a result must not import or open what it names. The caller must give
    such a name.
    """
    import timm
    from torchvision import models

    library, _, rest = name.partition(":")
    if f"{library}:" == _TORCHVISION:
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


def _from_timm(name: str, preset: Preset, weights: str | None) -> nn.Module:
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
        names = ", ".join([*PRESETS, *_added()])
        allowed = f"a timm name, {_TORCHVISION}NAME, hf-hub:…, package.module:factory or one of {names}"
        raise InputError("model", name, f"is not a known network ({allowed})", hint)
    try:
        get_pretrained_cfg(preset.architecture)
    except RuntimeError as error:
        hint = nearest(name, timm.list_pretrained(f"{architecture}.*")) or f"`model={architecture}`"
        raise InputError("model", name, f"timm knows no weights {tag!r} for {architecture}", hint) from error


def _pretrained(name: str, preset: Preset) -> nn.Module:
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


def _create(name: str, architecture: str, **options: Any) -> nn.Module:
    import timm

    needs_hub = options["pretrained"] or architecture.startswith(_HUBS)
    try:
        # Without a network, looking up the hub's name can take seconds.
        with _cache_only_without_network() if needs_hub else contextlib.nullcontext():
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


def _from_torchvision(entry: str, weights: str | None, name: str) -> nn.Module:
    """The network of an entry ``torchvision:NAME`` or ``torchvision:NAME:WEIGHTS``, with its `transform` as attribute.

    Without WEIGHTS, those that torchvision calls the default. A file in `weights` takes their place; the
    preprocessing stays that of the published ones. `name` is what the user calls the network.
    """
    architecture, published = _parse_torchvision(entry)
    state = read_state(weights) if weights is not None else _download_torchvision(name, published)
    state = {_OLD_DENSENET.sub(r"\1\2", key): value for key, value in state.items()}
    path = weights or published.url
    with NothingLarger(state, path):
        model = _empty_torchvision(architecture, published, state)
    fit_state(model, state, path)
    model.transform = published.transforms()
    return model


def _parse_torchvision(entry: str) -> tuple[str, Any]:
    """Architecture and entry of torchvision's enumeration of its weights."""
    from torchvision import models

    architecture, _, tag = entry.removeprefix(_TORCHVISION).partition(":")
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


def _download_torchvision(name: str, published: Any) -> State:
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


def _empty_torchvision(architecture: str, published: Any, state: State) -> nn.Module:
    """The architecture in which these weights were trained, with as many classes as the file has."""
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


def _own(name: str, find: Callable[[], Any], weights: str | None) -> nn.Module:
    """A user's own network, from the factory that ``find`` gives."""
    try:
        model = find()()
    except Exception as error:  # a user's own code may raise anything
        problem = f"the factory failed: {type(error).__name__}: {one_line(error, 160)}"
        raise InputError("model", name, problem, "package.module:factory, callable without arguments") from error
    if not isinstance(model, nn.Module):
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
