"""Small registries, written the way ``refit`` writes them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ghost_ray.files import OutputFolder, join, write_json
from ghost_ray.gaussians import Gaussians
from ghost_ray.manifest import Network, now, write_manifest
from ghost_ray.model import ModelManifest, write_model, write_threshold
from ghost_ray.registry import VersionManifest, new_id, version_folder


def fingerprint(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()


def make_version(root: str, word: str, **summary: Any) -> str:
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
        write_threshold(model, {"threshold": float(number)})
        write_json(join(output.staging, "drift.json"), {"previous": None, "changed": ["weights"]})
        manifest = VersionManifest(
            created=now(),
            network=network,
            rows=27,
            version=version,
            fingerprint=fingerprint(word),
            summary={"accuracy": 0.9, "rejected_fraction": 0.01, "auoscr": {}, **summary},
        )
        write_manifest(output.staging, manifest)
        output.publish()
    return version
