"""A service that refreshes all the time goes on through whatever happens to its registry."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.object_stores import ObjectStore, object_store_in_environment
from support.registries import make_version

import ghost_ray
from ghost_ray import registry
from ghost_ray.config.refit_settings import LabelConfig, PromoteConfig, RollbackConfig
from ghost_ray.registry import operations


class Service(threading.Thread):
    """Refreshes every ten milliseconds and checks each time that what it serves is of one version."""

    def __init__(self, root: str) -> None:
        super().__init__(daemon=True)
        self.loaded = ghost_ray.load(root)
        self.problems: list[str] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.01):
            try:
                self.loaded = self.loaded.refresh()
                number = float(str(self.loaded.version).split("-")[0])
                if self.loaded.threshold != number or not (self.loaded.model.gaussians.mean == number).all():
                    self.problems.append(f"a mixture in {self.loaded.version}")
            except Exception as error:
                self.problems.append(repr(error))

    def serves(self, version: str) -> Callable[[], bool]:
        return lambda: self.loaded.version == version


def soon(condition: Callable[[], object]) -> bool:
    """Whether it becomes so; much longer than it should take, for slow machines."""
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def flip_gaussians(store: ObjectStore, version: str) -> None:
    path = f"{store.bucket}/registry/versions/{version}/model/gaussians.safetensors"
    content = bytearray(store.filesystem().open_input_file(path).read())
    content[-1] ^= 1
    with store.filesystem().open_output_stream(path) as handle:
        handle.write(bytes(content))


def test_an_outage_a_promotion_a_rollback_and_a_damaged_version(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ghost_ray.registry")
    with object_store_in_environment(monkeypatch) as store:
        root = f"s3://{store.bucket}/registry"
        first, second, third = (make_version(root, word) for word in "abc")
        operations.promote(PromoteConfig(root=root, version=first))
        service = Service(root)
        service.start()
        store.down = True
        assert soon(lambda: service.loaded.trouble)
        assert "too slowly" in str(service.loaded.trouble)
        store.down = False
        assert soon(lambda: service.loaded.trouble is None)
        operations.promote(PromoteConfig(root=root, version=second))
        assert soon(service.serves(second))
        operations.rollback(RollbackConfig(root=root))
        assert soon(service.serves(first))
        # Damaged after it was promoted, and before anybody looked.
        flip_gaussians(store, third)
        registry.move(root, lambda pointer: registry.promoted(pointer, third, "refit"))
        assert soon(lambda: "gaussians.safetensors" in str(service.loaded.trouble))
        assert service.loaded.version == first
        operations.rollback(RollbackConfig(root=root))
        assert soon(lambda: service.loaded.trouble is None)
        operations.promote(PromoteConfig(root=root, version=second))
        assert soon(service.serves(second))
        service.stopped.set()
        service.join()
    assert service.problems == []
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("continues to serve" in text for text in warnings)
    assert len(warnings) < 20, "said when it begins, not every ten milliseconds"


def test_a_label_is_followed_and_a_version_stays(tmp_path: Path) -> None:
    root = str(tmp_path)
    first, second = make_version(root, "a"), make_version(root, "b")
    operations.promote(PromoteConfig(root=root, version=first))
    operations.label(LabelConfig(root=root, version="2", label="canary"))
    canary, pinned = ghost_ray.load(root, version="canary"), ghost_ray.load(root, version="2")
    assert (canary.version, canary.threshold) == (second, 2.0)
    assert canary.refresh() is canary
    operations.label(LabelConfig(root=root, version="1", label="canary"))
    moved = canary.refresh()
    assert (moved.version, moved.wanted) == (first, "canary")
    assert pinned.refresh() is pinned
    operations.label(LabelConfig(root=root, version="canary", label="canary", remove=True))
    assert moved.refresh() is moved
    assert "canary" in str(moved.trouble)


@pytest.mark.parametrize("wanted", ["2", "0002", None])
def test_refresh_reads_one_file_and_lists_nothing(monkeypatch: pytest.MonkeyPatch, wanted: str | None) -> None:
    with object_store_in_environment(monkeypatch) as remote:
        root = f"s3://{remote.bucket}/registry"
        for word in "ab":
            version = make_version(root, word)
        operations.promote(PromoteConfig(root=root, version=version))
        serving = ghost_ray.load(root, version=wanted)
        remote.seen.clear()
        assert serving.refresh() is serving
        assert serving.trouble is None
        assert {path.rpartition("/")[2] for _, path in remote.seen} == {"current.json"}
