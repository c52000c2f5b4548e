"""Stores of earlier format versions are read; those of later ones are refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.stores import Toy, forget_digests, write_store

from ghost_ray.config import AuditConfig, FitConfig
from ghost_ray.errors import InputError
from ghost_ray.jobs import audit, fit
from ghost_ray.store import Store

BY_0_1 = Path(__file__).parent / "written_by_0_1"


def test_a_store_of_version_0_1_is_read_and_fitted_to_the_same_bytes(tmp_path: Path) -> None:
    store = Store.open(str(BY_0_1 / "store"))
    assert (store.manifest.format_version, store.manifest.order, store.clustered) == (1, None, True)
    fit.run(FitConfig(store=store.uri, out=str(tmp_path / "model")))
    for name in ("gaussians.safetensors", "statistics.safetensors"):
        assert (tmp_path / "model" / name).read_bytes() == (BY_0_1 / "model" / name).read_bytes()
    assert audit.run(AuditConfig(store=store.uri, out=str(tmp_path / "audit"), max_n=10))["tests"] == 12


def test_a_later_format_is_refused_in_one_line(tmp_path: Path, rng: np.random.Generator) -> None:
    toy = Toy.make(rng)
    store = write_store(tmp_path / "s", *toy.known(rng, 50), toy)
    assert store.manifest.format_version == 2
    forget_digests(store.uri)
    where = tmp_path / "s" / "manifest.json"
    where.write_text(json.dumps(json.loads(where.read_text()) | {"format_version": 3}))
    with pytest.raises(InputError, match="has format version 3, this release reads 1 and 2"):
        Store.open(store.uri)
