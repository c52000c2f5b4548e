"""`OpenSetClassifier`: a network and its Gaussians as one torch module, for a service."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn

from ghost_ray.backbone import Backbone, load_backbone, name_from_manifest
from ghost_ray.errors import InputError, redact
from ghost_ray.files.manifest import Network, require_same_network
from ghost_ray.gaussians import SMALLEST_Z_SUM, Gaussians
from ghost_ray.registry import Loaded, load


class OpenSetClassifier(nn.Module):
    """Classifies images and says which of them belong to no class.

    ``prediction, gamma, accepted = classifier(images)`` with images [B, 3, H, W] prepared by ``transform``:
    prediction [B] int64, gamma [B] float32 (higher = more known, −inf where the predicted class has no Gaussian, never
    NaN), accepted [B] bool. The numbers are those of ``ghost-ray score``, to the precision of float32.

    A plain module: it moves with ``.to("cuda")``, runs under `torch.inference_mode` and autocast, and goes through
    `torch.export`. Made by `from_model`.

    Parameters
    ----------
    body : Module
        Images to embeddings [B, D].
    head : Linear
        D → K.
    gaussians : Gaussians
        Of K classes and D dimensions.
    threshold : float
        Accept at or above.
    transform : callable, optional
        The network's own preprocessing, PIL image → tensor [3, H, W].
    class_names : list of str, optional

    Examples
    --------
    >>> classifier = OpenSetClassifier.from_model("models/ghost")                      # doctest: +SKIP
    >>> with torch.inference_mode():                                                   # doctest: +SKIP
    ...     prediction, gamma, accepted = classifier(classifier.transform(image)[None])
    """

    mean: torch.Tensor  # [K, D]
    inverse_std: torch.Tensor  # [K, D], 0 where a dimension is constant
    present: torch.Tensor  # [K] bool, which classes have a Gaussian
    threshold: torch.Tensor  # scalar

    def __init__(
        self,
        body: nn.Module,
        head: nn.Linear,
        gaussians: Gaussians,
        threshold: float,
        transform: Any = None,
        class_names: list[str] | None = None,
    ) -> None:
        super().__init__()
        shape = (head.out_features, head.in_features)
        if gaussians.mean.shape != shape:
            raise ValueError(f"the head has K, D = {shape}, the Gaussians {gaussians.mean.shape}")
        self.body, self.head = body, head
        self.transform, self.class_names = transform, class_names
        self.register_buffer("mean", torch.tensor(gaussians.mean))
        self.register_buffer("inverse_std", torch.tensor(gaussians.inverse_std))
        self.register_buffer("present", torch.tensor(gaussians.present))
        self.register_buffer("threshold", torch.tensor(threshold, dtype=torch.float32))
        self.eval().requires_grad_(False)

    @classmethod
    def from_model(
        cls,
        uri: str,
        network: str | nn.Module | Backbone | None = None,
        weights: str | None = None,
        threshold: float | None = None,
        device: str | None = None,
    ) -> OpenSetClassifier:
        """A classifier from a model made by ``fit``, or from the current version of a registry.

        Parameters
        ----------
        uri : str
            Model or registry, local or on an object store.
        network : str, Module or Backbone, optional
            The network the model was fitted on, as a name, or loaded already (a Module is copied, not changed).
            Default: the name in the model's manifest, if it is a preset or a network of timm or torchvision. Any other
            name must be given here: a manifest does not decide which code runs.
        weights : str, optional
            Its checkpoint, where `network` is a name. Default: the copy that a refit with ``keep_weights: true`` put
            beside the version, else the published weights of that name.
        threshold : float, optional
            Default: the one stored with the model by ``ghost-ray score`` or ``refit``.
        device : str, optional
            Default: where a loaded network is, else cuda where there is one.

        Raises
        ------
        InputError
            If the network is not the model's, naming both, if no threshold was ever chosen, or if the weights of a
            version came from a file of which no copy was kept, naming it.
        """
        loaded = load(uri)
        chosen = loaded.threshold if threshold is None else threshold
        if chosen is None:
            raise InputError(
                "model",
                redact(uri),
                "has no threshold stored with it",
                "give `threshold`, or choose one with `ghost-ray score`",
            )
        manifest = loaded.model.manifest
        kept = manifest.network.restricted_to
        if isinstance(network, Backbone):
            backbone = network
        else:
            if network is None:
                network = name_from_manifest(manifest.network.name, uri)
            if weights is None and not isinstance(network, nn.Module):
                weights = _weights_of(loaded)
            backbone = load_backbone(network, weights, device)
        if kept is not None and backbone.restricted_to is None and max(kept) < backbone.classes:
            backbone = backbone.restrict(kept)
        require_same_network(
            manifest.network,
            f"the model {redact(uri)}",
            _described(backbone, manifest.network),
            backbone.name,
            "network",
        )
        classifier = cls(
            backbone.body,
            backbone.linear(),
            loaded.model.gaussians,
            chosen,
            backbone.transform,
            manifest.class_names,
        )
        return classifier.to(device or backbone.device)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Prediction [B], gamma [B] and accepted [B] of images [B, 3, H, W]."""
        embedding = self.body(images)
        with _full_precision(embedding.device.type):
            embedding = embedding.float()
            logit, prediction = self.head(embedding).max(dim=1)
            deviation = (embedding - self.mean[prediction]).abs() * self.inverse_std[prediction]
            gamma = logit / deviation.sum(dim=1).clamp(min=SMALLEST_Z_SUM)
            unusable = ~self.present[prediction] | gamma.isnan()
            gamma = gamma.masked_fill(unusable, -torch.inf)
        return prediction, gamma, gamma >= self.threshold


def _weights_of(loaded: Loaded) -> str | None:
    """The copy kept beside the version; None if the weights are the network's published ones.

    Where the weights were is only said: a manifest is data, and what it names is not opened.
    """
    kept = loaded.kept_weights()
    if kept is None and loaded.weights is not None:
        were = f"the network's weights were at {loaded.weights} when {loaded.version} was made"
        raise InputError("weights", "", were, "give `weights`; `keep_weights: true` for a refit keeps a copy")
    return kept


def _full_precision(device: str) -> contextlib.AbstractContextManager[Any]:
    """Turn autocast off for γ, if the caller has it on: bfloat16 cannot represent its differences."""
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return contextlib.nullcontext()


def _described(backbone: Backbone, model: Network) -> Network:
    """The backbone as a manifest has it, under the model's name for it: weights and shape decide."""
    return Network(
        name=model.name,
        weights_sha256=backbone.weights_sha256,
        classes=backbone.classes,
        dimensions=backbone.dimensions,
        restricted_to=backbone.restricted_to,
    )
