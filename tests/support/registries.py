"""Small registries, written the way ``refit`` writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ghost_ray.config.refit_settings import PromoteConfig
from ghost_ray.files import OutputFolder, join, write_bytes, write_json
from ghost_ray.files.manifest import Network, now, write_manifest
from ghost_ray.gaussians import Gaussians
from ghost_ray.model import ModelManifest, write_model, write_threshold
from ghost_ray.registry import AnsweredGate, VersionManifest, new_id, operations, version_folder


def fingerprint(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()


def make_version(root: str, word: str, gates: Sequence[AnsweredGate] = (), **summary: Any) -> str:
    """Publish a version made from the input ``word``; every mean, and the threshold, is its number."""
    version = new_id(root, fingerprint(word))
    number = int(version.split("-")[0])
    network = Network(name="toy", weights_sha256=fingerprint(word), classes=3, dimensions=4)
    with OutputFolder(version_folder(root, version), resume=True) as output:
        gaussians = Gaussians(
            mean=np.full((3, 4), number, np.float32),
            std=np.ones((3, 4), np.float32),
            count=np.full(3, 9, np.int64),
        )
        model = join(output.staging, "model")
        write_model(model, gaussians, None, ModelManifest(created=now(), network=network, rows=27))
        write_threshold(model, {"threshold": float(number), "rule": "threshold"})
        write_json(join(output.staging, "drift.json"), {"previous": None, "changed": ["weights"]})
        write_json(join(output.staging, "audit", "summary.json"), {"tests": 12, "rejected": number})
        write_bytes(join(output.staging, "report.html"), f"<!doctype html>{word}".encode())
        manifest = VersionManifest(
            created=now(),
            network=network,
            rows=27,
            version=version,
            fingerprint=fingerprint(word),
            gates=list(gates),
            summary={"accuracy": 0.9, "rejected_fraction": 0.01, "auoscr": {}, **summary},
        )
        write_manifest(output.staging, manifest)
        output.publish()
    return version


def make_promoted(root: str, words: str) -> str:
    """A registry with a version for each letter, every one of which became current in turn."""
    for word in words:
        operations.promote(PromoteConfig(root=root, version=make_version(root, word)))
    return root
