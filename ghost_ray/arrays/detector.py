"""GHOST as a detector of the pytorch-ood library: its data loaders, its polarity, its pipelines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch

from ghost_ray.arrays.ghost_model import Ghost

try:
    from pytorch_ood.api import FeaturesDetector, ModelNotSetException, RequiresFittingException
    from pytorch_ood.utils import extract_features
except ImportError as error:
    raise ImportError("ghost_ray.GhostDetector needs pytorch-ood: pip install 'ghost-ray[pytorch-ood]'") from error


class GhostDetector(FeaturesDetector):  # type: ignore[misc]  # a library without types
    """Outlier scores −γ: as in all of pytorch-ood, higher is more likely an outlier.

    Parameters
    ----------
    encoder : callable, optional
        Images to features [B, D], the input of the last linear layer. Not needed where features are given.
    w : Tensor of shape [K, D]
        Weight of the last linear layer.
    b : Tensor of shape [K]
        Its bias.

    Examples
    --------
    >>> detector = ghost_ray.GhostDetector(net.forward_features, net.fc.weight, net.fc.bias)  # doctest: +SKIP
    >>> detector.fit(train_loader)                                                             # doctest: +SKIP
    >>> metrics.update(detector(x), y)                                                         # doctest: +SKIP
    """

    requires_fit = True

    def __init__(self, encoder: Callable[[torch.Tensor], torch.Tensor] | None, w: torch.Tensor, b: torch.Tensor):
        self.encoder = encoder
        self.w, self.b = w.detach(), b.detach()

    def fit(self, data_loader: Any) -> Self:
        """Fit on a loader of (images, labels)."""
        features, labels = extract_features(data_loader, self._needed_encoder(), self.w.device)
        return self.fit_features(features, labels)

    def fit_features(self, x: torch.Tensor, y: torch.Tensor) -> Self:
        """Fit on features [N, D] and labels [N]; rows with a negative label are outliers and add nothing."""
        x = x.to(self.w.device)
        self.ghost_ = Ghost().fit(x, y.clamp(min=-1), self._logits(x))
        return self

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        """Outlier scores [B] of images."""
        with torch.no_grad():
            return self.predict_features(self._needed_encoder()(x.to(self.w.device)))

    def predict_features(self, x: torch.Tensor) -> torch.Tensor:
        """Outlier scores [B] of features [B, D]; the largest number where the predicted class has no Gaussian."""
        if not hasattr(self, "ghost_"):
            raise RequiresFittingException
        outlier: torch.Tensor = -self.ghost_.score(x, self._logits(x))
        return outlier.clamp(max=torch.finfo(torch.float32).max).float()

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x.detach().float(), self.w.float(), self.b.float())

    def _needed_encoder(self) -> Callable[[torch.Tensor], torch.Tensor]:
        if self.encoder is None:
            raise ModelNotSetException
        return self.encoder
