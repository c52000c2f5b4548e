"""Extraction from an object store that fails for a while: complete or failed, never short; and what damage counts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs
from support.faulty_proxy import KINDS, Fault, FaultyProxy, Kind, faulty_proxy
from support.job_processes import run as run_job
from support.object_stores import ObjectStore, object_store_in_environment
from support.pictures import as_list, as_parquet, as_webdataset, write_folder
from support.refits import config_of, write_world
from test_extract import failures_of, make, rows_of

from ghost_ray import registry
from ghost_ray.errors import GateFailed, GhostRayError, InputError, JobFailed
from ghost_ray.files import join
from ghost_ray.files.paths import one_attempt
from ghost_ray.jobs.extract import job as extract_job
from ghost_ray.jobs.extract import run as extract
from ghost_ray.jobs.extract.plan import make_plan
from ghost_ray.jobs.refit import run as refit
from ghost_ray.registry.verifying import STORES
from ghost_ray.store import Store

PER_CLASS = 3
IMAGES = 4 * PER_CLASS
PATIENCE = 1.0
TIMES = 20
# By the name of a source, an object in it: an image or a shard.
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


@pytest.fixture(scope="module")
def requests(proxy: tuple[FaultyProxy, ObjectStore], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The paths of the requests that an extraction without faults makes, by source."""
    before, store = proxy
    asked = {}
    for name in SOURCES:
        before.begin(None)
        extract(make(tmp_path_factory.mktemp("undisturbed") / "store", f"s3://{store.bucket}/{name}", batch_size=64))  # type: ignore[arg-type]
        asked[name] = before.paths
    return asked


def disturbed(
    proxy: FaultyProxy, bucket: str, out: Path, kind: Kind, scope: str, number: int, requests: dict[str, list[str]]
) -> None:
    """One extraction with a fault at a random moment: complete, or failed and complete when it is run again."""
    draw = random.Random(f"{kind} {scope} {number}")
    name = sorted(SOURCES)[number % len(SOURCES)]
    place = SOURCES[name] if scope == "one" else ""
    first = draw.randrange(sum(place in path for path in requests[name]))
    # Every other fault outlasts the patience; a request that is never answered would only make the test wait.
    seconds = 3600 if number % 2 and kind != "pause" else draw.uniform(0.1, 2 * PATIENCE)
    fault = Fault(kind, first, seconds, place)
    config = make(out, f"s3://{bucket}/{name}", batch_size=64)  # type: ignore[arg-type]
    proxy.begin(fault)
    error = None
    with one_attempt():  # of the client itself, so that a test need not wait for many
        try:
            result = extract(config)
        except GhostRayError as raised:
            error = raised
        assert fault.hits
        if error is None:
            assert (result["rows"], result["failures"]) == (IMAGES, 0)
            assert len(rows_of(out)) == IMAGES
            return
        assert error.exit_code == 1, error
        assert not out.exists()
        assert "\n" not in str(error)
        assert "run the same command again" in str(error)
        proxy.begin(None)
        assert extract(config)["rows"] == IMAGES


@pytest.mark.parametrize("kind", KINDS)
def test_complete_or_failed(
    proxy: tuple[FaultyProxy, ObjectStore], requests: dict[str, list[str]], tmp_path: Path, kind: Kind
) -> None:
    disturbed(proxy[0], proxy[1].bucket, tmp_path / "store", kind, "one", 1, requests)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scope", ["one", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_complete_or_failed_twenty_times(
    proxy: tuple[FaultyProxy, ObjectStore], requests: dict[str, list[str]], tmp_path: Path, kind: Kind, scope: str
) -> None:
    for number in range(TIMES):
        disturbed(proxy[0], proxy[1].bucket, tmp_path / str(number), kind, scope, number, requests)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["503", "reset"])
def test_complete_or_failed_on_ray(proxy: tuple[FaultyProxy, ObjectStore], tmp_path: Path, kind: Kind) -> None:
    before, store = proxy
    words = ["extract", "--data", f"s3://{store.bucket}/shards", "--model", "support.networks:small"]
    words += ["--out", str(tmp_path / "store"), "--num-cpus", "2", "--actors", "1"]
    before.begin(Fault(kind, 0, 3600, SOURCES["shards"]))
    ended = run_job(*words)
    assert ended.code == 1
    assert "Traceback" not in ended.errors
    assert "run the same command again" in ended.errors.splitlines()[-1]
    assert not (tmp_path / "store").exists()
    before.begin(None)
    result = run_job(*words).result()
    assert (result["rows"], result["failures"]) == (IMAGES, 0)


def test_a_throttled_shard_is_never_promoted(proxy: tuple[FaultyProxy, ObjectStore], tmp_path: Path) -> None:
    before, store = proxy
    write_world(tmp_path)
    keys = sorted(path.relative_to(tmp_path / "train").as_posix() for path in (tmp_path / "train").glob("*/*.png"))
    as_webdataset(tmp_path / "train", keys, tmp_path / "train-shards")
    direct, bucket = fs.FileSystem.from_uri(store.uri(store.bucket))
    fs.copy_files(str(tmp_path / "train-shards"), f"{bucket}/train", destination_filesystem=direct)
    config = config_of(tmp_path, fit={"data": f"s3://{store.bucket}/train"})
    before.begin(Fault("503", 0, 3600, "0001.tar"))
    with one_attempt(), pytest.raises(GhostRayError, match="the store answers too slowly") as caught:
        refit(config)
    assert caught.value.exit_code == 1
    assert registry.current(config.registry) is None
    before.begin(None)
    answer = refit(config)
    assert answer["outcome"] == "promoted"
    version = registry.read_version(config.registry, answer["version"])
    assert Store.open(join(config.registry, STORES, version.stores["fit"])).rows == len(keys)


@pytest.mark.parametrize("name", SOURCES)
def test_credentials_that_end_midway_end_the_job(
    proxy: tuple[FaultyProxy, ObjectStore], requests: dict[str, list[str]], tmp_path: Path, name: str
) -> None:
    """What may not be read is not damaged: no image of it is counted as a failure."""
    before, store = proxy
    place = SOURCES[name]
    before.begin(Fault("403", sum(place in path for path in requests[name]) - 1, 3600, place))
    config = make(tmp_path / "store", f"s3://{store.bucket}/{name}", max_failures=1.0)  # type: ignore[arg-type]
    with one_attempt(), pytest.raises(InputError, match=r"access is denied .* check the credentials"):
        extract(config)
    before.begin(None)
    assert extract(config)["rows"] == IMAGES


@pytest.mark.parametrize("name", ["shards", "tables"])
def test_a_damaged_shard_counts_all_its_images(tmp_path: Path, name: str) -> None:
    keys = write_folder(tmp_path / "folder", PER_CLASS)
    write, suffix = {"shards": (as_webdataset, "tar"), "tables": (as_parquet, "parquet")}[name]
    write(tmp_path / "folder", keys, tmp_path / name)
    damaged = tmp_path / name / f"0001.{suffix}"
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    with pytest.raises(GateFailed, match=r"[567] of 1[123] images failed, more than `max_failures=0.2` allows"):
        extract(make(tmp_path / "store", tmp_path / name, max_failures=0.2))
    result = extract(make(tmp_path / "store", tmp_path / name, max_failures=0.6))
    assert result["rows"] == IMAGES // 2
    assert result["failures"] == pytest.approx(IMAGES // 2, abs=1)
    ((key, (stage, error)),) = failures_of(tmp_path / "store").items()
    assert key.startswith(damaged.name)
    assert stage == "read"
    assert error.endswith(f"about {result['failures']} images")


def test_what_does_not_add_up_to_the_listing_is_not_published(tmp_path: Path) -> None:
    keys = write_folder(tmp_path / "folder", PER_CLASS)
    config = make(tmp_path / "store", tmp_path / "folder")
    plan = make_plan(config)
    (tmp_path / "folder" / keys[0]).unlink()
    problem = f"{IMAGES} images were listed at first, {IMAGES - 1} when they were read"
    with pytest.raises(JobFailed, match=problem + ".*run the same command again"):
        extract_job.extract(config, plan)
    assert not (tmp_path / "store").exists()
