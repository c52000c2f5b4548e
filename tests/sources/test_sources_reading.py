"""Reading from a real S3 endpoint that drops requests, and one that is down as a whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import fs
from support.fake_endpoints import Trouble
from support.object_stores import ObjectStore, object_store_in_environment

from ghost_ray.errors import GhostRayError, JobFailed
from ghost_ray.files.paths import one_attempt
from ghost_ray.sources import make_items, open_source
from ghost_ray.sources.reading import WAIT_VARIABLE, FileReader


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with object_store_in_environment(monkeypatch) as store:
        yield store


@pytest.fixture
def filesystem(remote: ObjectStore) -> fs.FileSystem:
    # Of the requests that fail, the client itself repeats few, so that a test need not wait for many.
    patience = fs.AwsDefaultS3RetryStrategy(max_attempts=2)
    settings = {"endpoint_override": remote.endpoint, "scheme": "http", "region": "us-east-1"}
    return fs.S3FileSystem(access_key="test", secret_key="test", retry_strategy=patience, **settings)


def upload(filesystem: fs.FileSystem, path: str) -> None:
    with filesystem.open_output_stream(path) as handle:
        handle.write(b"picture")


def items(*names: str) -> pa.Table:
    return make_items(list(names), list(names), [None] * len(names))


def test_what_the_store_drops_is_asked_for_again(remote: ObjectStore, filesystem: fs.FileSystem) -> None:
    names = [f"{number}.jpg" for number in range(20)]
    for name in names:
        upload(filesystem, f"{remote.bucket}/{name}")
    remote.period, before = 3, remote.requests
    read = list(FileReader(filesystem, remote.bucket).read(items(*names)))
    assert [image.data for image in read] == [b"picture"] * len(names)
    assert remote.requests > before + len(names)


def test_a_missing_object_is_not_the_stores_fault(remote: ObjectStore, filesystem: fs.FileSystem) -> None:
    upload(filesystem, f"{remote.bucket}/there.jpg")
    there, missing = FileReader(filesystem, remote.bucket).read(items("there.jpg", "missing.jpg"))
    assert (there.data, missing.data, missing.error) == (b"picture", None, "does not exist")


def test_a_store_that_comes_back_is_waited_for(remote: ObjectStore, filesystem: fs.FileSystem) -> None:
    upload(filesystem, f"{remote.bucket}/there.jpg")
    remote.down = True
    mended = threading.Timer(1.0, lambda: setattr(remote, "down", False))
    mended.start()
    (there,) = FileReader(filesystem, remote.bucket).read(items("there.jpg"))
    assert not remote.down
    assert there.data == b"picture"


def test_a_store_that_stays_down_ends_the_job(
    remote: ObjectStore, filesystem: fs.FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAIT_VARIABLE, "0.5")
    upload(filesystem, f"{remote.bucket}/there.jpg")
    remote.down = True
    with pytest.raises(JobFailed, match=r"there.jpg': the store answers too slowly .*run the same command again"):
        list(FileReader(filesystem, remote.bucket).read(items("there.jpg")))


@pytest.mark.parametrize(
    ("trouble", "code", "words"),
    [
        ("forbidden", 2, "access is denied"),
        ("wrong region", 2, "the bucket is in another region"),
        ("busy", 1, "the store answers too slowly"),
        ("broken", 1, "the store cannot be reached"),
    ],
)
@pytest.mark.parametrize("place", ["classes/b", "list.txt"])
def test_an_error_in_the_middle_of_a_listing_is_told_by_its_cause(
    remote: ObjectStore,
    filesystem: fs.FileSystem,
    place: str,
    trouble: Trouble,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(WAIT_VARIABLE, "0.5")
    for name in ("classes/a/1.jpg", "classes/b/2.jpg", "list.txt"):
        upload(filesystem, f"{remote.bucket}/{name}")
    with one_attempt():  # so that the test need not wait for the client's own attempts
        source = open_source(remote.uri(f"{remote.bucket}/{place.split('/')[0]}"))
    remote.trouble[place] = trouble
    with pytest.raises(GhostRayError, match=words) as caught:
        [list(source.reader.scan(shard)) for shard in source.shards]
    assert caught.value.exit_code == code
    assert "\n" not in str(caught.value)
    assert "password" not in str(caught.value)
    if place == "classes/b" and code == 2:  # the preview of a folder lists it, too
        with pytest.raises(GhostRayError, match=words):
            open_source(source.uri)


@pytest.mark.parametrize("place", ["classes", "list.txt"])
def test_what_is_listed_while_the_store_is_down_is_listed_when_it_is_back(
    remote: ObjectStore, filesystem: fs.FileSystem, place: str
) -> None:
    for name in ("classes/a/1.jpg", "list.txt"):
        upload(filesystem, f"{remote.bucket}/{name}")
    source = open_source(remote.uri(f"{remote.bucket}/{place}"))
    before = [scan.items for shard in source.shards for scan in source.reader.scan(shard)]
    remote.down = True
    threading.Timer(1.0, lambda: setattr(remote, "down", False)).start()
    assert [scan.items for shard in source.shards for scan in source.reader.scan(shard)] == before
    assert not remote.down
