"""What befalls a registry, and what its users see of it: rows of the registry table."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fault_table import Fault
from support.object_stores import ObjectStore, object_store_in_environment
from support.registries import fingerprint, make_promoted, make_version

import ghost_ray
from ghost_ray import registry
from ghost_ray.config.refit_settings import PromoteConfig, PruneConfig, RollbackConfig, StatusConfig
from ghost_ray.errors import Damaged, GateFailed, Unreachable
from ghost_ray.files.json_files import unsealed
from ghost_ray.registry import operations
from ghost_ray.registry.status import status


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A registry of three versions, all of which were current once."""
    return make_promoted(str(tmp_path / "registry"), "abc")


def spoil(root: str, version: str, file: str) -> None:
    place = Path(root, "versions", version, file)
    content = bytearray(place.read_bytes())
    content[len(content) // 2] ^= 1
    place.write_bytes(content)


@pytest.mark.fault("registry", "a byte of the current version changes")
def test_a_byte_of_the_current_version_changes(root: str, fault: Fault) -> None:
    serving = ghost_ray.load(root)
    spoil(root, str(serving.version), "model/gaussians.safetensors")
    with pytest.raises(Damaged):
        ghost_ray.load(root)
    assert serving.refresh() is serving
    with pytest.raises(GateFailed, match="is damaged"):
        status(StatusConfig(root=root, check=True))
    assert operations.rollback(RollbackConfig(root=root))["current"] == registry.version_ids(root)[1]
    assert ghost_ray.load(root).version == registry.version_ids(root)[1]
    fault.ended(
        "`load` refuses it, a running service keeps what it has, `status --check` exits 1; `rollback` leaves it"
    )


@pytest.mark.fault("registry", "the version to roll back to is damaged")
def test_the_version_to_roll_back_to_is_damaged(root: str, fault: Fault) -> None:
    first, second, _ = registry.version_ids(root)
    spoil(root, second, "report.html")
    result = operations.rollback(RollbackConfig(root=root))
    assert (result["current"], [one["version"] for one in result["skipped"]]) == (first, [second])
    fault.ended("`rollback` says so and takes the next intact one")


@pytest.mark.fault("registry", "`current.json` is lost or damaged")
@pytest.mark.parametrize("content", [None, b"", b'{"version": "0001'])
def test_the_pointer_is_lost_or_damaged(root: str, content: bytes | None, fault: Fault) -> None:
    before = ghost_ray.load(root)
    pointer = Path(root, "current.json")
    pointer.unlink() if content is None else pointer.write_bytes(content)
    assert ghost_ray.load(root).version == before.version
    assert "is used" in status(StatusConfig(root=root))["problems"][0]
    operations.promote(PromoteConfig(root=root, version="1"))
    assert status(StatusConfig(root=root))["problems"] == []
    fault.ended("its copy is used, `status` says so, the next promotion or refit repairs it")


@pytest.mark.fault("registry", "killed while `current.json` is written")
def test_killed_while_the_pointer_is_written(root: str, fault: Fault) -> None:
    ids = registry.version_ids(root)
    code = (
        "from itertools import cycle; from ghost_ray import registry\n"
        f"for version in cycle({ids!r}):\n"
        f"    registry.move({root!r}, lambda pointer: registry.promoted(pointer, version, 'promote'))\n"
        "    print(version, flush=True)"
    )
    rng = random.Random()
    for _ in range(3):
        mover = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert mover.stdout is not None
        assert mover.stdout.readline().strip() in ids
        time.sleep(rng.uniform(0, 0.3))  # it moves the pointer many times
        mover.kill()
        mover.communicate()
        pointer = registry.current(root)
        assert pointer is not None
        assert unsealed(Path(root, "current.json").read_bytes())["version"] == pointer.version
        assert ghost_ray.load(root).version == pointer.version
        assert status(StatusConfig(root=root))["problems"] == []
    fault.ended("it is the old one or the new one, never a mixture")


@pytest.mark.fault("registry", "a version turns out bad in service")
def test_a_version_turns_out_bad_in_service(root: str, fault: Fault) -> None:
    _, second, third = registry.version_ids(root)
    serving = ghost_ray.load(root)
    assert serving.version == third
    operations.rollback(RollbackConfig(root=root, reason="too many rejected"))
    assert serving.refresh().version == second
    pointer = registry.current(root)
    assert pointer is not None
    assert pointer.held_versions(fingerprint("c"))
    fault.ended("`registry rollback`: services follow at their next `refresh`, and no refit promotes it again")


@pytest.mark.fault("registry", "a prune is killed midway")
def test_a_prune_is_killed_midway(root: str, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    make_version(root, "d")
    make_version(root, "e")

    def killed(root: str, version: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(operations, "remove_version", killed)
        with pytest.raises(KeyboardInterrupt):
            operations.prune(PruneConfig(root=root, keep=1))
    before = registry.current(root)
    assert before is not None
    assert before.removing
    assert ghost_ray.load(root).version == before.version
    result = operations.prune(PruneConfig(root=root, keep=1))
    assert result["removed"] == before.removing
    after = registry.current(root)
    assert after is not None
    assert after.removing == []
    fault.ended("a version that was being removed cannot be promoted; the next prune removes it")


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with object_store_in_environment(monkeypatch) as store:
        yield store


@pytest.mark.fault("registry", "the object store is down")
def test_the_object_store_is_down(remote: ObjectStore, fault: Fault) -> None:
    root = f"s3://{remote.bucket}/registry"
    first, second = make_version(root, "a"), make_version(root, "b")
    operations.promote(PromoteConfig(root=root, version=first))
    serving = ghost_ray.load(root)
    remote.down = True
    assert serving.refresh() is serving
    assert serving.trouble
    with pytest.raises(Unreachable) as caught:
        operations.promote(PromoteConfig(root=root, version=second))
    assert caught.value.exit_code == 1
    remote.down = False
    assert serving.refresh() is serving
    assert serving.trouble is None
    operations.promote(PromoteConfig(root=root, version=second))
    assert serving.refresh().version == second
    fault.ended("commands exit 1 in one line; a running service keeps what it has, and follows when the store is back")


@pytest.mark.fault("registry", "two promote at the same time")
def test_two_promote_at_the_same_moment(remote: ObjectStore, fault: Fault) -> None:
    root = f"s3://{remote.bucket}/registry"
    first, second, third = (make_version(root, word) for word in "abc")
    operations.promote(PromoteConfig(root=root, version=first))

    def overtaken(pointer: registry.Pointer | None) -> registry.Pointer:
        operations.promote(PromoteConfig(root=root, version=second))
        return registry.promoted(pointer, third, "promote")

    with pytest.raises(registry.Busy, match=f"{second} is current now"):
        registry.move(root, overtaken)
    pointer = registry.current(root)
    assert pointer is not None
    assert [move.version for move in pointer.history] == [first, second]
    fault.ended("one wins, the other exits 1 with an error; nothing is overwritten")
