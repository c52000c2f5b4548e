"""`load_backbone`: a named network without its head, checked and ready to embed batches, and its preprocessing."""

from __future__ import annotations

import copy
import dataclasses
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import nn

from ghost_ray.backbone.build import build
from ghost_ray.backbone.split_head import split_head
from ghost_ray.backbone.weights import fingerprint
from ghost_ray.errors import InputError, one_line
from ghost_ray.rows import Head

Transform = Callable[[Image.Image], torch.Tensor]  # an RGB image → float32 [3, H, W]
PRECISIONS: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(eq=False)
class Backbone:
    """A classifier split into body and last linear layer. Made by :func:`load_backbone`."""

    name: str  # as the user gave it
    input_size: tuple[int, ...]  # (3, H, W)
    device: torch.device
    precision: str
    head_name: str  # where the last layer was
    seconds_an_image: float  # an estimate, from the pass that checked the head
    _body: nn.Module = field(repr=False)
    _full_head: nn.Linear = field(repr=False)
    _kept: list[int] | None = field(default=None, repr=False)  # class indices left by `restrict`
    _compile: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        weight: torch.Tensor = self._full_head.weight
        bias = self._full_head.bias if self._full_head.bias is not None else weight.new_zeros(len(weight))
        kept = slice(None) if self._kept is None else self._kept
        self._weight, self._bias = weight[kept], bias[kept]
        # With one convolution (the patches of a transformer) there is nothing to gain from the layout.
        convolutions = sum(isinstance(module, nn.Conv2d) for module in self._body.modules())
        self._layout = torch.channels_last if convolutions > 1 else torch.contiguous_format
        self._body.to(memory_format=self._layout)
        self._run = torch.compile(self._body) if self._compile else self._body

    @property
    def transform(self) -> Transform:
        """PIL RGB image → float32 tensor [3, H, W]; picklable."""
        return self._own_preprocessing[0]

    @property
    def preprocessing(self) -> dict[str, Any]:
        """The same in words, for the manifest; of an attribute `transform` its repr."""
        return self._own_preprocessing[1]

    @cached_property
    def _own_preprocessing(self) -> tuple[Transform, dict[str, Any]]:
        custom = _own_transform(self._body)
        if custom is not None:
            return custom, {"transform": one_line(repr(custom), 1000)}
        # Imports torchvision, which takes longer than torch; an actor needs none of it.
        from timm.data.config import resolve_data_config
        from timm.data.transforms_factory import create_transform

        settings: dict[str, Any] = resolve_data_config(pretrained_cfg=_own_config(self._body))
        description = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
        return create_transform(**settings, is_training=False), description

    @property
    def classes(self) -> int:
        """K, after `restrict`."""
        return int(self._weight.shape[0])

    @property
    def dimensions(self) -> int:
        """D, the length of an embedding."""
        return int(self._weight.shape[1])

    @property
    def bytes(self) -> int:
        """Size of all weights in memory."""
        return sum(tensor.nbytes for tensor in (*self._body.state_dict().values(), *self._full_head.parameters()))

    @property
    def restricted_to(self) -> list[int] | None:
        """The classes kept of the head, None if all were."""
        return self._kept

    def restrict(self, classes: Sequence[int]) -> Backbone:
        """The same network with only these classes of its whole head, in this order; the body is shared."""
        return dataclasses.replace(self, _kept=kept_classes(classes, self._full_head.out_features))

    @property
    def body(self) -> nn.Module:
        """The network without its last layer: images to embeddings [B, D]."""
        return self._body

    def linear(self) -> nn.Linear:
        """The last layer as a module of its own, with the classes that were kept."""
        layer = nn.Linear(self.dimensions, self.classes, device=self.device)
        layer.load_state_dict({"weight": self._weight, "bias": self._bias})
        return layer.requires_grad_(False)

    @property
    def head(self) -> Head:
        """The last layer as arrays; a layer without bias has zeros."""
        return Head(self._weight.cpu().numpy(), self._bias.cpu().numpy())

    @cached_property
    def weights_sha256(self) -> str:
        """Fingerprint of the whole network's tensors, head included, `restrict` not considered."""
        head = {f"{self.head_name}.{key}": value for key, value in self._full_head.state_dict().items()}
        return fingerprint(self._body.state_dict() | head)

    def require_weights(self, sha256: str, weights: str | None) -> None:
        """Refuse if this is not the network that the plan was made with; ``weights`` is where its weights are."""
        if self.weights_sha256 == sha256:
            return
        if weights is None:
            problem = f"{self.name} has other tensors each time it is made: it initialises them at random"
            raise InputError("model", self.name, problem, "give `weights`")
        found, expected = self.weights_sha256[:12], sha256[:12]
        problem = f"{socket.gethostname()} reads other tensors ({found}) than the plan ({expected})"
        raise InputError("weights", weights, problem, "put the same weights on all nodes, then run it again")

    @torch.inference_mode()
    def embed(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One forward pass.

        Parameters
        ----------
        batch : Tensor [B, 3, H, W]
            Preprocessed images, on any device.

        Returns
        -------
        embedding, logits : Tensor [B, D] and [B, K], float32, on the backbone's device
            Logits are computed in float32 from the embedding whatever the precision of the body, so that the stored
            embedding and head give the same logits.
        """
        batch = batch.to(self.device, non_blocking=True, memory_format=self._layout)
        reduced = self.precision != "fp32"
        with torch.autocast(self.device.type, dtype=PRECISIONS[self.precision], enabled=reduced):
            embedding = self._run(batch)
        embedding = embedding.float()
        return embedding, nn.functional.linear(embedding, self._weight, self._bias)


def load_backbone(
    model: str | nn.Module,
    weights: str | None = None,
    device: str | None = None,
    precision: str = "fp32",
    compile: bool = False,
    restrict: Sequence[int] | None = None,
) -> Backbone:
    """Build a network, load its weights, take off its last linear layer and check that body and layer give its logits.

    Parameters
    ----------
    model : str or Module
        A timm name, ``hf-hub:…``, ``torchvision:NAME`` or ``torchvision:NAME:WEIGHTS``, a preset
        (:data:`~ghost_ray.backbone.PRESETS`) or ``package.module:factory``, a callable without arguments that
        returns a Module. A Module itself is copied and left as it is.
    weights : str, optional
        ``.safetensors`` or ``.pth``/``.pt``/``.bin`` (read as weights only), local or on an object store. Without
        it, the published weights of timm or torchvision, or what the factory returns.
    device : str, optional
        Default: ``cuda`` where there is one, else ``cpu``.
    precision : {'fp32', 'bf16', 'fp16'}
        Of the body's forward pass (autocast); what comes out is float32.
    compile : bool
        Run the body through `torch.compile`.
    restrict : sequence of int, optional
        Keep only these classes of the head, in this order.

    Raises
    ------
    InputError
        For any name, file or head that cannot be used, before anything is computed.
    """
    where = _device(device, precision)
    name = model if isinstance(model, str) else type(model).__name__
    module = build(model, weights) if isinstance(model, str) else copy.deepcopy(model).eval().requires_grad_(False)
    shape = _input_shape(module, name)
    module = module.float().to(where)
    # A private generator: loading a network must not change the global random state.
    probe = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)).to(where)
    split = split_head(module, probe, name)
    return Backbone(
        name=name,
        input_size=shape,
        device=where,
        precision=precision,
        head_name=split.head_name,
        seconds_an_image=split.seconds,
        _body=module,
        _full_head=split.head,
        _kept=None if restrict is None else kept_classes(restrict, split.head.out_features),
        _compile=compile,
    )


def _device(device: str | None, precision: str) -> torch.device:
    if precision not in PRECISIONS:
        raise InputError("precision", precision, f"is not one of {', '.join(PRECISIONS)}")
    try:
        where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError) as error:
        raise InputError("device", device, f"cannot be used: {one_line(error, 120)}", "cpu or cuda") from error
    if where.type == "cpu" and precision == "fp16":
        raise InputError("precision", precision, "is for GPUs; this process runs on the CPU", "bf16 or fp32")
    return where


def _own_transform(model: nn.Module) -> Transform | None:
    custom = getattr(model, "transform", None)
    return custom if callable(custom) else None


def _own_config(model: nn.Module) -> dict[str, Any] | None:
    """What timm's evaluation transform needs, where the module says it."""
    config: Any = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    config = config.to_dict() if hasattr(config, "to_dict") else config
    return config if isinstance(config, dict) and "input_size" in config else None


def _input_shape(model: nn.Module, name: str) -> tuple[int, ...]:
    """Shape [3, H, W] of the network's input: of what its `transform` returns, or as its configuration says."""
    custom = _own_transform(model)
    if custom is not None:
        made = custom(Image.new("RGB", (320, 240)))
        if not isinstance(made, torch.Tensor) or made.ndim != 3:
            raise InputError("model", name, "its transform does not turn an image into a tensor [3, H, W]")
        return tuple(made.shape)
    config = _own_config(model)
    if config is None:
        raise InputError(
            "model",
            name,
            "does not say how its images are prepared",
            "give the module an attribute `transform` (PIL image → tensor) or a dict `pretrained_cfg` with"
            " input_size, mean, std, crop_pct and interpolation",
        )
    return tuple(config["input_size"])


def kept_classes(restrict: Sequence[int], classes: int) -> list[int]:
    """The indices in ``restrict``, checked against the number of classes of the whole head."""
    kept = [int(index) for index in restrict]
    wrong = [index for index in kept if not 0 <= index < classes]
    if wrong or not kept or len(set(kept)) != len(kept):
        shown = wrong[:5] or kept[:5]
        raise InputError("restrict", shown, f"must be distinct classes from 0 to {classes - 1}, at least one")
    return kept
