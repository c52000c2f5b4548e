"""Extraction from an object store that fails for a while: the store is complete, or the job fails; it is never short."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from support.faulty_proxy import KINDS, Fault, FaultyProxy, Kind, faulty_proxy
from support.job_processes import run as run_job
from support.object_stores import ObjectStore, object_store_in_environment
from support.pictures import as_list, as_parquet, as_webdataset, write_folder
from test_extract import make, rows_of

from ghost_ray.errors import GhostRayError, JobFailed
from ghost_ray.files.paths import one_attempt
from ghost_ray.jobs.extract import run
from ghost_ray.store import Store

PER_CLASS = 3
IMAGES = 4 * PER_CLASS
PATIENCE = 1.5
TIMES = 20
# By the name of a source, an object in it: an image or a part.
SOURCES = {"folder": "bee/00001.jpg", "shards": "0001.tar", "tables": "0001.parquet", "list.txt": "cat/00002.jpg"}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FaultyProxy, ObjectStore]]:
    """A bucket with the same images in every kind of source, behind a proxy."""
    local = tmp_path_factory.mktemp("sources")
    keys = write_folder(local / "folder", PER_CLASS)
    as_webdataset(local / "folder", keys, local / "shards")
    as_parquet(local / "folder", keys, local / "tables")
    as_list(local / "folder", keys, local / "list.txt")
    with pytest.MonkeyPatch.context() as monkeypatch, object_store_in_environment(monkeypatch) as store:
        fs.copy_files(str(local), store.bucket, destination_filesystem=store.filesystem())
        with faulty_proxy(store.endpoint) as before:
            monkeypatch.setenv("AWS_ENDPOINT_URL", before.url)
            monkeypatch.setenv("GHOST_RAY_STORE_PATIENCE", str(PATIENCE))
            yield before, store


def disturbed(
    proxy: FaultyProxy, bucket: str, out: Path, kind: Kind, scope: str, number: int
) -> tuple[Fault, GhostRayError | None]:
    """One extraction with a fault at a random moment, and how it ended."""
    draw = random.Random(f"{kind} {scope} {number}")
    name = sorted(SOURCES)[number % len(SOURCES)]
    fault = Fault(kind, draw.randrange(30), draw.uniform(0.1, 2 * PATIENCE), SOURCES[name] if scope == "one" else "")
    config = make(out, f"s3://{bucket}/{name}", batch_size=64)  # type: ignore[arg-type]
    proxy.begin(fault)
    error = None
    with one_attempt():  # of the client itself, so that a test need not wait for many
        try:
            result = run(config)
        except GhostRayError as raised:
            error = raised
        if error is None:
            assert (result["rows"], result["failures"]) == (IMAGES, 0)
            assert len(rows_of(out)) == IMAGES
            return fault, None
        assert error.exit_code == 1, error
        assert not out.exists()
        assert "\n" not in str(error)
        assert "run the same command again" in str(error)
        proxy.begin(None)
        assert run(config)["rows"] == IMAGES
    return fault, error


def check(proxy: tuple[FaultyProxy, ObjectStore], tmp_path: Path, kind: Kind, scope: str, numbers: range) -> None:
    before, store = proxy
    ends = [disturbed(before, store.bucket, tmp_path / str(number), kind, scope, number) for number in numbers]
    assert any(fault.hits for fault, _ in ends)


@pytest.mark.parametrize("scope", ["one", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_complete_or_failed(proxy: tuple[FaultyProxy, ObjectStore], tmp_path: Path, kind: Kind, scope: str) -> None:
    check(proxy, tmp_path, kind, scope, range(1))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scope", ["one", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_complete_or_failed_twenty_times(
    proxy: tuple[FaultyProxy, ObjectStore], tmp_path: Path, kind: Kind, scope: str
) -> None:
    check(proxy, tmp_path, kind, scope, range(TIMES))
