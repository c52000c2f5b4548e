"""Stores of formats that this release does not know are refused in one line, with the way out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.stores import Toy, forget_digests, write_store

from ghost_ray.errors import InputError
from ghost_ray.store import Store


@pytest.mark.parametrize("version", [1, 2, 3, 5])
def test_another_format_is_refused_in_one_line(tmp_path: Path, rng: np.random.Generator, version: int) -> None:
    toy = Toy.make(rng)
    store = write_store(tmp_path / "s", *toy.known(rng, 50), toy)
    assert store.manifest.format_version == 4
    forget_digests(store.uri)
    where = tmp_path / "s" / "manifest.json"
    where.write_text(json.dumps(json.loads(where.read_text()) | {"format_version": version}))
    with pytest.raises(InputError, match=f"has format version {version}, this release reads 4 .*ghost-ray extract"):
        Store.open(store.uri)
