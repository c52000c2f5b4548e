"""What is known of a network without running it, and that it is read once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.backbones import network, saved
from support.object_stores import object_store_in_environment

from ghost_ray.backbone import load_backbone, network_facts, network_info
from ghost_ray.errors import InputError


@pytest.fixture
def weights(tmp_path: Path) -> str:
    return saved(network("test_vit"), tmp_path / "w.safetensors")


def test_facts_are_those_of_the_network(weights: str) -> None:
    found, loaded = network_facts("test_vit", weights), load_backbone("test_vit", weights, device="cpu")
    names = ("weights_sha256", "classes", "dimensions", "preprocessing", "restricted_to", "bytes")
    assert [getattr(found, name) for name in names] == [getattr(loaded, name) for name in names]
    narrowed, expected = found.restrict([5, 2]), loaded.restrict([5, 2])
    assert (narrowed.classes, narrowed.restricted_to) == (2, [5, 2])
    np.testing.assert_array_equal(narrowed.head.weight, expected.head.weight)
    np.testing.assert_array_equal(narrowed.head.bias, expected.head.bias)
    for classes in ([], [1, 1], [7], [-1]):
        with pytest.raises(InputError, match="distinct classes from 0 to 6"):
            found.restrict(classes)


def test_a_network_is_read_once_until_its_file_changes(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(network_info, "load_backbone", lambda *given, **_: read.append(given) or load_backbone(*given))
    first = network_facts("test_vit", weights)
    assert network_facts("test_vit", weights) is first
    assert len(read) == 1
    saved(network("test_vit", classes=3), Path(weights))
    assert network_facts("test_vit", weights).classes == 3
    assert len(read) == 2


def test_weights_on_an_object_store(weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with object_store_in_environment(monkeypatch) as store:
        with store.filesystem().open_output_stream(f"{store.bucket}/w.safetensors") as handle:
            handle.write(Path(weights).read_bytes())
        place = f"s3://{store.bucket}/w.safetensors"
        remote = load_backbone("test_vit", place, device="cpu")
        assert remote.weights_sha256 == network_facts("test_vit", weights).weights_sha256
        assert network_facts("test_vit", place).weights_sha256 == remote.weights_sha256
        assert store.seen.count(("GET", f"/{store.bucket}/w.safetensors")) == 1
        with pytest.raises(InputError, match=r"weights 's3://.*/w.txt': does not exist"):
            load_backbone("test_vit", f"s3://{store.bucket}/w.txt", device="cpu")


def test_another_network_than_the_plans_is_refused(weights: str) -> None:
    loaded = load_backbone("test_vit", weights, device="cpu")
    loaded.require_weights(loaded.weights_sha256, weights)
    with pytest.raises(
        InputError, match=r"^weights '.*w.safetensors': \S+ reads other tensors \(\w{12}\) than the plan"
    ):
        loaded.require_weights("0" * 64, weights)
    with pytest.raises(InputError, match="initialises them at random — give `weights`"):
        loaded.require_weights("0" * 64, None)
