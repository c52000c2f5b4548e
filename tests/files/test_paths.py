"""Buckets are opened once per process, wherever their file system came from, and asked as little as can be."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from pyarrow import fs
from ray import cloudpickle
from support.object_stores import ObjectStore, object_store_in_environment

from ghost_ray.files import OutputFolder, join, names_in, read_bytes, resolve, write_bytes


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with object_store_in_environment(monkeypatch) as running:
        yield running


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket?region=us-east-1",
        "s3://bucket/?region=us-east-1",
        "s3://bucket/a/b%20c/?region=us-east-1",
        "s3://user:secret@bucket/a%2Fb?endpoint_override=127.0.0.1:1&scheme=http",
        "gs://anonymous@bucket/a/b",
    ],
)
def test_the_path_is_the_one_that_pyarrow_finds(uri: str) -> None:
    assert resolve(uri)[1] == fs.FileSystem.from_uri(uri)[1].rstrip("/")


def test_names_need_no_quoting(store: ObjectStore) -> None:
    place = f"s3://{store.bucket}/straße am see/#1"
    write_bytes(place, b"here")
    assert read_bytes(place) == b"here"
    assert names_in(f"s3://{store.bucket}/straße am see") == ["#1"]


def test_a_bucket_is_opened_once(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, _ = resolve(f"s3://{store.bucket}/a")
    assert resolve(f"s3://{store.bucket}/b/c")[0] is opened
    assert pickle.loads(pickle.dumps(opened)) is opened
    assert cloudpickle.loads(cloudpickle.dumps({"reader": opened}))["reader"] is opened
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert resolve(f"s3://{store.bucket}/a")[0] is not opened


def test_a_small_object_is_one_request(store: ObjectStore) -> None:
    resolve(f"s3://{store.bucket}/a")
    before = len(store.seen)
    write_bytes(f"s3://{store.bucket}/a", b"x" * 100_000)
    assert store.seen[before:] == [("PUT", f"/{store.bucket}/a")]


def test_a_result_is_copied_side_by_side_and_its_manifest_last(store: ObjectStore) -> None:
    place = f"s3://{store.bucket}/result"
    with OutputFolder(place) as output:
        for name in ("manifest.json", *(f"rows/{number}" for number in range(12))):
            write_bytes(join(output.staging, name), b"{}")
        store.delay, store.peak, before = 0.1, 0, len(store.seen)
        output.publish()
        store.delay = 0
    copied = [path for method, path in store.seen[before:] if method == "PUT" and "/result/" in path]
    assert len(copied) == 13
    assert copied[-1].endswith("manifest.json")
    assert store.peak > 4
