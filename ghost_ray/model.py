"""A fitted model on disk: the Gaussians, the running statistics behind them, and the thresholds chosen for it.

Layout::

    MODEL/gaussians.safetensors     mean [K, D] float32, std [K, D] float32, count [K] int64
    MODEL/statistics.safetensors    mean [K, D] float64, m2 [K, D] float64, count [K] int64: what a refit merges into
    MODEL/thresholds.json           where one was chosen
    MODEL/manifest.json             written last
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict, cast

import numpy as np

from ghost_ray.errors import Damaged, InputError, one_line, redact
from ghost_ray.files import join, kind_of, parse_json, reaching, read_bytes, write_bytes
from ghost_ray.files.digests import Digest, digest_of_bytes
from ghost_ray.files.json_files import layout
from ghost_ray.files.manifest import Manifest, read_manifest, write_manifest
from ghost_ray.files.tensors import Blocks, read_tensors, write_tensors
from ghost_ray.gaussians import Accumulator, Gaussians

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
    # While a threshold is being stored: what thresholds.json may hold meanwhile, null for no such file.
    choosing: list[Digest | None] = []


class Threshold(TypedDict):
    """What thresholds.json holds: the threshold and how it was chosen."""

    threshold: float
    rule: str  # threshold, accept-known or accept-fpr
    share: NotRequired[float]  # of the samples of a store, where it was chosen on one
    store: NotRequired[str]
    rows: NotRequired[int]


class Model:
    """A complete model, opened for reading."""

    def __init__(self, uri: str, manifest: ModelManifest, gaussians: Gaussians, field: str = "model") -> None:
        self.uri, self.manifest, self.gaussians, self.field = uri, manifest, gaussians, field

    @classmethod
    def open(cls, uri: str, field: str = "model") -> Model:
        """Open and check a model: manifest and Gaussians as written, shapes and values as described."""
        manifest = _read_manifest(uri, field)
        tensors = read_tensors(join(uri, GAUSSIANS), field, uri, (manifest.digests or {}).get(GAUSSIANS))
        shape = (manifest.network.classes, manifest.network.dimensions)
        wanted = {"mean": (shape, np.float32), "std": (shape, np.float32), "count": (shape[:1], np.int64)}
        _require(tensors, wanted, GAUSSIANS, field, uri)
        return cls(uri, manifest, Gaussians(**{name: tensors[name] for name in wanted}), field)

    def statistics(self) -> Accumulator | None:
        """Count, mean and M2 behind the Gaussians, to merge new samples into; None if they were not kept."""
        written = (self.manifest.digests or {}).get(STATISTICS)
        if written is None and kind_of(join(self.uri, STATISTICS)) != "file":
            return None
        tensors = read_tensors(join(self.uri, STATISTICS), self.field, self.uri, written)
        shape = (self.manifest.network.classes, self.manifest.network.dimensions)
        wanted = {"count": (shape[:1], np.int64), "mean": (shape, np.float64), "m2": (shape, np.float64)}
        _require(tensors, wanted, STATISTICS, self.field, self.uri)
        return Accumulator(tensors["count"], tensors["mean"], tensors["m2"])

    def thresholds(self) -> Threshold | None:
        """The threshold chosen for this model, or None."""
        try:
            data = self._threshold_bytes(self.manifest)
        except Damaged:
            # Another may have been chosen since the model was opened.
            data = self._threshold_bytes(_read_manifest(self.uri, self.field))
        if data is None:
            return None
        try:
            content = parse_json(data)
            if not isinstance(content, dict) or not isinstance(content.get("threshold"), int | float):
                raise ValueError("holds no threshold")
            float(content["threshold"])
            content = {"rule": "threshold", **content}  # one that was written by hand says no more
            if not isinstance(content["rule"], str):
                raise ValueError("its rule is not a word")
        except (ValueError, OverflowError) as error:
            raise InputError(
                self.field, redact(self.uri), f"{THRESHOLDS}: {one_line(error)}", "choose it again"
            ) from None
        return cast(Threshold, content)

    def _threshold_bytes(self, manifest: ModelManifest) -> bytes | None:
        """What thresholds.json holds, None if there is none; Damaged if that is not what the manifest says."""
        where = join(self.uri, THRESHOLDS)
        with reaching(self.uri, self.field):
            data = read_bytes(where) if kind_of(where) == "file" else None
        allowed = [None if digest is None else digest.sha256 for digest in _thresholds_allowed(manifest)]
        if manifest.digests is None or (None if data is None else digest_of_bytes(data).sha256) in allowed:
            return data
        problem = "is missing" if data is None else "is not as it was written"
        raise Damaged(self.field, redact(self.uri), f"{THRESHOLDS} {problem}", "choose it again with `ghost-ray score`")


def _read_manifest(uri: str, field: str) -> ModelManifest:
    return read_manifest(uri, ModelManifest, field, "ghost-ray fit STORE --out MODEL")


def _thresholds_allowed(manifest: ModelManifest) -> list[Digest | None]:
    return manifest.choosing or [(manifest.digests or {}).get(THRESHOLDS)]


def _require(tensors: dict[str, np.ndarray], wanted: dict[str, Any], file: str, field: str, uri: str) -> None:
    """Refuse a tensor that is missing, of another shape or type, or not finite."""
    for name, (size, kind) in wanted.items():
        found = tensors.get(name)
        if found is None or found.shape != size or found.dtype != kind:
            raise InputError(field, redact(uri), f"{file} has no {name} of shape {size} {np.dtype(kind)}", "fit again")
        if not np.isfinite(found).all():
            raise InputError(field, redact(uri), f"{file}: {name} holds a NaN or infinity", "fit again")


def write_model(
    folder: str, gaussians: Gaussians | None, statistics: Accumulator | None, manifest: ModelManifest
) -> None:
    """Write a model into ``folder``, the manifest last; without Gaussians, those of the statistics."""
    if gaussians is not None:
        write_tensors(join(folder, GAUSSIANS), {"mean": gaussians.mean, "std": gaussians.std, "count": gaussians.count})
    elif statistics is not None:
        write_tensors(join(folder, GAUSSIANS), _gaussians_of(statistics))
    if statistics is not None:
        tensors = {"mean": statistics.mean, "m2": statistics.m2, "count": statistics.count}
        write_tensors(join(folder, STATISTICS), tensors)
    write_manifest(folder, manifest)


def _gaussians_of(statistics: Accumulator) -> dict[str, np.ndarray | Blocks]:
    """Gaussians that are never in memory as a whole."""
    shape, single = statistics.mean.shape, np.dtype(np.float32)
    return {
        "mean": Blocks(shape, single, (part.mean for part in statistics.finish_in_blocks())),
        "std": Blocks(shape, single, (part.std for part in statistics.finish_in_blocks())),
        "count": statistics.count,
    }


def write_threshold(uri: str, threshold: Threshold) -> None:
    """Store the chosen threshold beside the model, so that a service uses the same one.

    If it is killed at any time, the model has the old threshold or the new one.
    """
    data = layout(threshold)
    manifest = _read_manifest(uri, "model")
    if manifest.digests is None:
        write_bytes(join(uri, THRESHOLDS), data)
        return
    others = {name: digest for name, digest in manifest.digests.items() if name != THRESHOLDS}
    new = digest_of_bytes(data)
    either = [*_thresholds_allowed(manifest), new]
    write_manifest(uri, manifest.model_copy(update={"choosing": either}), others)
    write_bytes(join(uri, THRESHOLDS), data)
    write_manifest(uri, manifest.model_copy(update={"choosing": []}), {**others, THRESHOLDS: new})
