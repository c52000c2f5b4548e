"""A fitted model on disk: the Gaussians, the running statistics behind them, and the thresholds chosen for it.

Layout (DESIGN: the files)::

    MODEL/gaussians.safetensors     mean [K, D] float32, std [K, D] float32, count [K] int64
    MODEL/statistics.safetensors    mean [K, D] float64, m2 [K, D] float64, count [K] int64: what a refit merges into
    MODEL/thresholds.json           where one was chosen
    MODEL/manifest.json             written last
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ghost_ray.errors import InputError, one_line
from ghost_ray.files import join, kind_of, read_json, redact, write_json
from ghost_ray.gaussians import Accumulator, Gaussians
from ghost_ray.manifest import Manifest, read_manifest, write_manifest
from ghost_ray.tensors import read_tensors, write_tensors

GAUSSIANS = "gaussians.safetensors"
STATISTICS = "statistics.safetensors"
THRESHOLDS = "thresholds.json"


class ModelManifest(Manifest):
    """Manifest of a model; ``rows`` counts the correctly classified samples it was fitted on."""

    kind: Literal["model"] = "model"
    class_names: list[str] | None = None
    missing_classes: int = 0
    thin_classes: int = 0
    constant_dimensions: int = 0


class Model:
    """A complete model, opened for reading."""

    def __init__(self, uri: str, manifest: ModelManifest, gaussians: Gaussians) -> None:
        self.uri, self.manifest, self.gaussians = uri, manifest, gaussians

    @classmethod
    def open(cls, uri: str, field: str = "MODEL") -> Model:
        """Open and check a model: manifest readable, shapes and values of the Gaussians as promised."""
        manifest = read_manifest(uri, ModelManifest, field, "ghost-ray fit STORE --out MODEL")
        tensors = read_tensors(join(uri, GAUSSIANS), field, uri)
        shape = (manifest.network.classes, manifest.network.dimensions)
        wanted = {"mean": (shape, np.float32), "std": (shape, np.float32), "count": (shape[:1], np.int64)}
        _require(tensors, wanted, GAUSSIANS, field, uri)
        return cls(uri, manifest, Gaussians(**{name: tensors[name] for name in wanted}))

    def statistics(self) -> Accumulator | None:
        """Count, mean and M2 behind the Gaussians, to merge new samples into; None where they were not kept."""
        where = join(self.uri, STATISTICS)
        if kind_of(where) != "file":
            return None
        tensors = read_tensors(where, "MODEL", self.uri)
        shape = (self.manifest.network.classes, self.manifest.network.dimensions)
        wanted = {"count": (shape[:1], np.int64), "mean": (shape, np.float64), "m2": (shape, np.float64)}
        _require(tensors, wanted, STATISTICS, "MODEL", self.uri)
        return Accumulator(tensors["count"], tensors["mean"], tensors["m2"])

    def thresholds(self) -> dict[str, Any] | None:
        """The threshold chosen for this model, or None."""
        where = join(self.uri, THRESHOLDS)
        if kind_of(where) != "file":
            return None
        try:
            content = read_json(where)
            if not isinstance(content, dict) or not isinstance(content.get("threshold"), int | float):
                raise ValueError("holds no threshold")
            float(content["threshold"])
        except (ValueError, OverflowError, OSError) as error:
            raise InputError("MODEL", redact(self.uri), f"{THRESHOLDS}: {one_line(error)}", "choose it again") from None
        return content


def _require(tensors: dict[str, np.ndarray], wanted: dict[str, Any], file: str, field: str, uri: str) -> None:
    """Refuse a tensor that is missing, of another shape or type, or not finite."""
    for name, (size, kind) in wanted.items():
        found = tensors.get(name)
        if found is None or found.shape != size or found.dtype != kind:
            raise InputError(field, redact(uri), f"{file} has no {name} of shape {size} {np.dtype(kind)}", "fit again")
        if not np.isfinite(found).all():
            raise InputError(field, redact(uri), f"{file}: {name} holds a NaN or infinity", "fit again")


def write_model(folder: str, gaussians: Gaussians, statistics: Accumulator | None, manifest: ModelManifest) -> None:
    """Write a model into ``folder``, the manifest last."""
    write_tensors(join(folder, GAUSSIANS), {"mean": gaussians.mean, "std": gaussians.std, "count": gaussians.count})
    if statistics is not None:
        tensors = {"mean": statistics.mean, "m2": statistics.m2, "count": statistics.count}
        write_tensors(join(folder, STATISTICS), tensors)
    write_manifest(folder, manifest)


def write_threshold(uri: str, threshold: dict[str, Any]) -> None:
    """Store the chosen threshold beside the model, so that a service uses the same one."""
    write_json(join(uri, THRESHOLDS), threshold)
