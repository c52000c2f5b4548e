"""Local copies of remote files: fetched once, renewed when the file changes, never by halves."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.object_stores import ObjectStore, object_store_in_environment

from ghost_ray.errors import InputError
from ghost_ray.files import write_bytes
from ghost_ray.files.download_cache import hub_version, local_copy, version_of


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectStore]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with object_store_in_environment(monkeypatch) as made:
        yield made


def downloads(store: ObjectStore) -> int:
    return store.seen.count(("GET", f"/{store.bucket}/weights.pth"))


def test_a_local_file_is_its_own_copy(tmp_path: Path) -> None:
    assert local_copy(str(tmp_path / "w.pth"), "weights") == str(tmp_path / "w.pth")


def test_a_remote_file_is_fetched_once_by_all_processes_of_a_machine(store: ObjectStore) -> None:
    place = f"s3://{store.bucket}/weights.pth"
    write_bytes(place, b"one" * 1000)
    with ThreadPoolExecutor(8) as pool:
        (path,) = set(pool.map(lambda _: local_copy(place, "weights"), range(8)))
    assert Path(path).name == "weights.pth"
    assert Path(path).read_bytes() == b"one" * 1000
    assert downloads(store) == 1


def test_copies_are_for_their_user_alone(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "cache" / "ghost_ray" / "files").mkdir(parents=True, mode=0o755)  # as earlier releases left it
    place = f"s3://{store.bucket}/weights.pth"
    write_bytes(place, b"private")
    local_copy(place, "weights")
    assert (tmp_path / "cache" / "ghost_ray" / "files").stat().st_mode & 0o777 == 0o700


def test_another_version_is_noticed_without_a_download_and_takes_the_place_of_the_old(store: ObjectStore) -> None:
    place = f"s3://{store.bucket}/weights.pth"
    write_bytes(place, b"one")
    first, before = local_copy(place, "weights"), version_of(place, "weights")
    assert version_of(place, "weights") == before
    write_bytes(place, b"two")  # of the same size, within the same second
    assert version_of(place, "weights") != before
    assert downloads(store) == 1
    second = local_copy(place, "weights")
    assert (Path(second).read_bytes(), Path(first).exists()) == (b"two", False)


def test_what_is_not_there_is_refused(store: ObjectStore) -> None:
    with pytest.raises(InputError, match=r"^weights 's3://.*': does not exist"):
        local_copy(f"s3://{store.bucket}/weights.pth", "weights")
    write_bytes(f"s3://{store.bucket}/folder/weights.pth", b"one")
    with pytest.raises(InputError, match="is a folder"):
        local_copy(f"s3://{store.bucket}/folder", "weights")


def test_a_download_that_breaks_off_leaves_nothing_that_could_be_taken_for_whole(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"s3://{store.bucket}/weights.pth"
    write_bytes(place, b"one" * 1000)
    monkeypatch.setattr("ghost_ray.files.download_cache.open", lambda *_: _FullDisk(), raising=False)
    with pytest.raises(Exception, match="No space left"):
        local_copy(place, "weights")
    assert not list((tmp_path / "cache").rglob("weights.pth"))


class _FullDisk:
    def __enter__(self) -> None:
        raise OSError(28, "No space left on device")

    def __exit__(self, *_: object) -> None: ...


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers which commit a repository is at."""

    def do_GET(self) -> None:
        known = self.path.split("?")[0] in ("/api/models/owner/net", "/api/models/owner/net/revision/v2")
        commit = ("b" if "v2" in self.path else "a") * 40
        body = json.dumps({"id": "owner/net", "sha": commit, "siblings": []}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def test_the_commit_of_a_hub_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    try:
        assert hub_version("hf-hub:owner/net") == "a" * 40
        assert hub_version("hf-hub:owner/net@v2") == "b" * 40
        assert hub_version("hf-hub:owner/absent") is None
        assert hub_version("resnet18") is None
    finally:
        server.shutdown()
        server.server_close()
    assert hub_version("hf-hub:owner/net") is None
    refs = tmp_path / "models--owner--net" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("c" * 40)
    assert hub_version("hf-hub:owner/net") == "c" * 40
