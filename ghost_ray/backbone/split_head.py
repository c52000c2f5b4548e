"""A classifier split into its body and its last linear layer, with a check that both together give its logits."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
from torch import nn

from ghost_ray.errors import InputError, one_line

TOLERANCE = 1e-4  # of the largest logit of the probe


class SplitHead(NamedTuple):
    """The last linear layer of a classifier, taken out of it."""

    head_name: str  # the layer's name in the model
    head: nn.Linear  # [D → K]
    seconds: float  # of the body per image of the probe


def split_head(model: nn.Module, probe: torch.Tensor, name: str) -> SplitHead:
    """Take the last linear layer out of `model`, which from then on returns embeddings.

    Parameters
    ----------
    model : Module
        In evaluation mode; changed in place.
    probe : Tensor [B, 3, H, W]
        A batch on which head(embedding) must equal what the whole network returned before.
    """
    _refuse_known_shapes(model, name)
    logits, head_name, head = _run_and_find(model, probe, name)
    model.set_submodule(head_name, nn.Identity())
    try:
        with torch.inference_mode():
            start = time.perf_counter()
            embedding = model(probe)
            seconds = (time.perf_counter() - start) / len(probe)
            again = head(embedding)
    except Exception as error:  # whatever the network does with an input it was not made for
        reason = f"it cannot run without its last linear layer {head_name!r}: {one_line(error, 120)}"
        raise _not_linear(name, reason) from error
    if embedding.ndim != 2 or again.shape != logits.shape:
        raise _not_linear(name, f"the input of {head_name!r} has shape {list(embedding.shape)}, not [batch, D]")
    difference = (again - logits).abs().max().item()
    if not difference <= TOLERANCE * logits.abs().max().item():
        raise _not_linear(
            name,
            f"its output differs by {difference:.2g} from that of its last linear layer {head_name!r}:"
            " something follows that layer or bypasses it",
        )
    return SplitHead(head_name, head, seconds)


def _refuse_known_shapes(model: nn.Module, name: str) -> None:
    """Explain the error in terms of the network, if timm says what its classifier is."""
    ask = getattr(model, "get_classifier", None)
    if not callable(ask):
        return
    classifier = ask()
    if isinstance(classifier, (tuple, list, nn.ModuleList)):
        raise _not_linear(name, f"it has {len(classifier)} heads, whose outputs are combined")
    if classifier is None or isinstance(classifier, nn.Identity):
        raise InputError("model", name, "has no classifier (num_classes = 0)", "choose weights with a head")
    if isinstance(classifier, nn.Conv2d):
        raise _not_linear(name, "its classifier is a convolution (Conv2d)")


def _run_and_find(model: nn.Module, probe: torch.Tensor, name: str) -> tuple[torch.Tensor, str, nn.Linear]:
    executed: list[tuple[str, nn.Linear]] = []
    hooks = [
        module.register_forward_pre_hook(lambda m, _, n=module_name: executed.append((n, m)))
        for module_name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module_name
    ]
    try:
        with torch.inference_mode():
            logits = model(probe)
    except Exception as error:
        problem = f"fails on a batch of shape {list(probe.shape)}: {one_line(error, 120)}"
        raise InputError("model", name, problem, "does its preprocessing fit?") from error
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2:
        shown = list(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise InputError("model", name, f"returns {shown} for a batch, not logits [batch, classes]")
    if not torch.isfinite(logits).all():
        raise InputError("model", name, "returns non-finite logits for random pixels", "are the weights complete?")
    if not executed:
        raise _not_linear(name, "it runs no torch.nn.Linear at all")
    head_name, head = executed[-1]
    if head.out_features != logits.shape[1]:
        found = f"its last linear layer {head_name!r} gives {head.out_features} values and the network"
        raise _not_linear(name, f"{found} returns {logits.shape[1]}")
    return logits, head_name, head


def _not_linear(name: str, reason: str) -> InputError:
    return InputError("model", name, f"its head is not linear: {reason}", "GHOST needs logits = W·embedding + b")
