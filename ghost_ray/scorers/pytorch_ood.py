"""Detectors of the pytorch-ood library under our contract."""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np

from ghost_ray.errors import nearest
from ghost_ray.rows import Floats, Head, Rows
from ghost_ray.scorers._common import listed
from ghost_ray.scorers._sample import RowSample
from ghost_ray.scorers.catalogue import PYTORCH_OOD
from ghost_ray.scorers.scorer import Scorer, State

NETWORK_PARTS = ("model", "encoder", "backbone")  # parameters that take images; we begin after them


def detector_class(name: str) -> Any:
    """The detector of that name, if it can work on embeddings or logits."""
    try:
        from pytorch_ood import api, detector
    except ImportError as error:
        raise ValueError(
            f"{PYTORCH_OOD}{name} needs the pytorch-ood library: pip install 'ghost-ray[pytorch-ood]'"
        ) from error
    usable = (api.LogitsDetector, api.FeaturesDetector, api.FeatureMapsDetector)
    known = {
        n: c for n, c in vars(detector).items() if inspect.isclass(c) and issubclass(c, usable) and c not in usable
    }
    if name not in known:
        close = nearest(name, known)
        raise ValueError(
            f"{PYTORCH_OOD}{name} is not a detector of logits or features; "
            + (f"{close}; " if close else "")
            + f"known: {', '.join(sorted(known))}"
        )
    return known[name]


class TrainingSample(State):
    """A random sample of what a detector is fitted on, with labels."""

    def __init__(self, sample: RowSample, of_logits: bool) -> None:
        self.sample, self.of_logits = sample, of_logits

    def add(self, batch: Rows) -> None:
        self.sample.update(batch.row_id, batch.logits if self.of_logits else batch.embedding, batch.label)

    def merge(self, other: TrainingSample) -> None:
        self.sample.merge(other.sample)


class PytorchOOD(Scorer):
    """Any detector of pytorch-ood that works on logits, embeddings or feature maps; its outlier score, negated.

    https://pytorch-ood.readthedocs.io. An optional extra: ``pip install 'ghost-ray[pytorch-ood]'``.

    Parameters
    ----------
    detector : str
        Name of the class, e.g. ``GEN``, ``SHE``, ``DICE``.
    sample_rows : int, default 50000
        A detector is fitted on a uniform random sample of this many labelled training rows (all, if there are fewer),
        because the library needs them in one array.
    seed : int, default 0
        Of that sample, and of torch while it fits.
    **options
        Passed to the detector. What takes images (model, encoder, backbone) is left empty; ``head``, ``w`` and ``b``
        are the network's linear head. An embedding counts as a feature map of 1 × 1.

    Notes
    -----
    A NaN of a detector is scored −inf.
    """

    def __init__(self, detector: str, sample_rows: int = 50_000, seed: int = 0, **options: Any) -> None:
        self.name = PYTORCH_OOD + detector
        self.detector, self.sample_rows, self.seed, self.options = detector, sample_rows, seed, options
        kind = detector_class(detector)
        accepted = list(inspect.signature(kind.__init__).parameters.values())[1:]
        self._accepted = [p.name for p in accepted]
        self.needs_head = any(p in self._accepted for p in ("head", "w", "b"))
        self.passes = 1 if kind.requires_fit else 0
        unknown = sorted(o for o in options if o not in self._accepted)
        missing = [
            p.name
            for p in accepted
            if p.default is p.empty
            and p.kind is p.POSITIONAL_OR_KEYWORD
            and p.name not in (*options, *NETWORK_PARTS, "head", "w", "b")
        ]
        if unknown or missing:
            problem = f"has no option {unknown[0]!r}" if unknown else f"needs the option {missing[0]!r}"
            close = nearest(unknown[0], self._accepted) if unknown else ""
            options_known = f"options: {', '.join(self._accepted)}"
            raise ValueError("; ".join(filter(None, (f"{self.name} {problem}", close, options_known))))

    def bind(self, classes: int, dim: int, head: Head | None = None) -> Self:
        import torch
        from pytorch_ood import api

        super().bind(classes, dim, head)
        kind = detector_class(self.detector)
        self._verb = (
            "logits"
            if issubclass(kind, api.LogitsDetector)
            else "features"
            if issubclass(kind, api.FeaturesDetector)
            else "feature_maps"
        )
        parts: dict[str, Any] = dict.fromkeys(NETWORK_PARTS)
        if head is not None:
            linear = torch.nn.Linear(dim, classes)
            weight, bias = torch.from_numpy(head.weight.copy()), torch.from_numpy(head.bias.copy())
            linear.load_state_dict({"weight": weight, "bias": bias})
            linear.requires_grad_(False)
            flat = torch.nn.Sequential(torch.nn.Flatten(), linear)
            parts |= {"head": flat if self._verb == "feature_maps" else linear, "w": weight, "b": bias}
        given = {name: value for name, value in parts.items() if name in self._accepted}
        self.detector_ = kind(**{**given, **self.options})
        return self

    def begin(self, pass_index: int) -> State:
        return TrainingSample(RowSample(self.name, self.sample_rows, seed=self.seed), self._verb == "logits")

    def end_pass(self, pass_index: int, state: State) -> None:
        import torch

        assert isinstance(state, TrainingSample)
        values, label = state.sample.finish()
        self.seen_ = state.sample.seen
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            fit = getattr(self.detector_, f"fit_{self._verb}")
            try:
                fit(self._tensor(values), torch.from_numpy(label.astype(np.int64)))
            except (ValueError, AssertionError, RuntimeError, LookupError, TypeError) as error:
                reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                missing = np.setdiff1d(np.arange(self.classes_), label)
                if len(missing):
                    reason += f"; it may need rows of every class, and there are none of {listed(missing)}"
                raise ValueError(f"{self.name} cannot be fitted on these rows: {reason}") from error

    def _tensor(self, values: Any) -> Any:
        import torch

        tensor = torch.from_numpy(np.array(values, np.float32))
        return tensor[:, :, None, None] if self._verb == "feature_maps" else tensor

    def score_finite(self, batch: Rows) -> Floats:
        import torch

        with torch.no_grad():
            predict = getattr(self.detector_, f"predict_{self._verb}")
            outlier = predict(self._tensor(batch.logits if self._verb == "logits" else batch.embedding))
        scores: Floats = -outlier.reshape(len(batch)).cpu().numpy().astype(np.float64)
        scores[np.isnan(scores)] = -np.inf
        return scores

    def notes(self) -> list[str]:
        if not self.passes or self.seen_ <= self.sample_rows:
            return []
        return [f"{self.name}: fitted on a random {self.sample_rows} of {self.seen_} training samples"]
