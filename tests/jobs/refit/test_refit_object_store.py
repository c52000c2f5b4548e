"""A refit whose registry and data lie on an object store, and what of its secrets is found afterwards: nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from support.job_processes import Ended, Job
from support.object_stores import ObjectStore, object_store_in_environment
from support.refits import write_settings, write_world

import ghost_ray
from ghost_ray import registry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SECRETS = ("environment-s3cret", "uri-s3cret")


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with object_store_in_environment(monkeypatch) as store:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS[0])
        monkeypatch.setenv("MY_SERVICE_PASSWORD", SECRETS[0])
        yield store


@pytest.fixture
def ray_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where Ray puts the logs of a test's jobs; a short path, since it holds sockets."""
    folder = tempfile.mkdtemp(prefix="gr-")
    monkeypatch.setenv("RAY_TMPDIR", folder)
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


def refit(config: str) -> Ended:
    return Job("refit", "--config", config, "--num-cpus", "2").wait()


@pytest.mark.parametrize("credentials", ["in the environment", "in the URI"])
def test_promotes_then_is_up_to_date_and_tells_no_secret(
    remote: ObjectStore, ray_files: Path, tmp_path: Path, credentials: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def place(name: str) -> str:
        path = f"{remote.bucket}/{name}"
        return remote.uri(path, SECRETS[1]) if credentials == "in the URI" else f"s3://{path}"

    write_world(tmp_path)
    filesystem = remote.filesystem()
    for name in ("train", "test", "violet"):
        fs.copy_files(str(tmp_path / name), f"{remote.bucket}/{name}", destination_filesystem=filesystem)
    fs.copy_files(
        str(tmp_path / "weights.safetensors"),
        f"{remote.bucket}/weights.safetensors",
        destination_filesystem=filesystem,
    )
    network = {"model": "support.networks:small", "weights": place("weights.safetensors"), "actors": "1"}
    settings: dict[str, Any] = {
        "registry": place("registry"),
        "network": network,
        "fit": {"data": place("train")},
        "known": {"data": place("test")},
        "unknown": {"violet": {"data": place("violet")}},
        "keep_weights": True,
    }
    config = write_settings(tmp_path, **settings)

    first = refit(config)
    assert first.result()["outcome"] == "promoted"
    download = ("GET", f"/{remote.bucket}/weights.safetensors")
    assert remote.seen.count(download) == 1
    shutil.rmtree(tmp_path / "cache")
    second = refit(config)
    assert second.result()["outcome"] == "up to date"
    assert remote.seen.count(download) == 1
    broken = refit(write_settings(tmp_path, **{**settings, "fit": {"data": place("nowhere")}}))
    assert broken.code == 2

    loaded = ghost_ray.load(place("registry"))
    assert (loaded.version, loaded.refresh()) == (first.result()["version"], loaded)
    assert loaded.weights is not None
    assert loaded.weights.startswith(f"s3://{remote.bucket}/weights.safetensors")
    filesystem.delete_file(f"{remote.bucket}/weights.safetensors")
    assert ghost_ray.OpenSetClassifier.from_model(place("registry"), network["model"], device="cpu").class_names
    files = {
        info.path: filesystem.open_input_file(info.path).read()
        for info in filesystem.get_file_info(fs.FileSelector(f"{remote.bucket}/registry", recursive=True))
        if info.is_file
    }
    assert f"{remote.bucket}/registry/versions/{loaded.version}/report.html" in files
    assert not [path for path in files if ".partial" in path]
    assert registry.holder(place("registry"), "refit") is None

    logs = {str(path): path.read_bytes() for path in ray_files.rglob("*") if path.is_file() and not path.is_symlink()}
    assert logs
    said = {"output": (first.output + first.errors + second.output + second.errors + broken.errors).encode()}
    for secret in SECRETS:
        assert not [name for name, content in {**files, **logs, **said}.items() if secret.encode() in content]


def test_killed_while_it_is_promoted(remote: ObjectStore, tmp_path: Path) -> None:
    """The version is copied file by file, its manifest last: a kill in between leaves no torn one."""
    write_world(tmp_path)
    root = f"s3://{remote.bucket}/registry"
    config = write_settings(tmp_path, registry=root)
    victim = Job("refit", "--config", config, "--num-cpus", "2")
    filesystem = remote.filesystem()
    selector = fs.FileSelector(f"{remote.bucket}/registry/versions", recursive=True, allow_not_found=True)

    def copying() -> bool:
        names = [info.path.split("/")[3] for info in filesystem.get_file_info(selector) if info.is_file]
        return any(not name.endswith(".partial") for name in names)

    while victim.running() and not copying():
        pass
    assert victim.running()
    remote.down = True  # nothing it still wants to write arrives
    victim.kill_everything()
    remote.down = False
    assert registry.current(root) is None
    assert registry.version_ids(root) == []
    # Its lease is still there, but on this machine it is seen that nobody stands behind it.
    assert filesystem.get_file_info(f"{remote.bucket}/registry/.locks/refit.json").is_file
    assert registry.holder(root, "refit") is None
    assert refit(config).result()["outcome"] == "promoted"
    assert ghost_ray.load(root).version is not None
