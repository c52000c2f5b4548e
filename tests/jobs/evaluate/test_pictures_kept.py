"""An evaluation keeps small copies of the images that its report shows, from places that its caller vouches for."""

from __future__ import annotations

import io
import json
import shutil
import socket
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pyarrow import fs
from support.object_stores import object_store_in_environment
from support.pictures import write_folder

from ghost_ray.config import EvaluateConfig, ExtractConfig, ReportConfig
from ghost_ray.errors import InputError
from ghost_ray.files import join
from ghost_ray.files.json_files import sealed
from ghost_ray.jobs.evaluate import run
from ghost_ray.jobs.extract import run as extract
from ghost_ray.report import run as report


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of four classes and of none, and stores of them."""
    place = tmp_path_factory.mktemp("world")
    write_folder(place / "images", per_class=6)
    (place / "grey").mkdir()
    for row in range(10):
        Image.new("RGB", (300, 200), (99 + row, 99, 99)).save(place / "grey" / f"{row}.png")
    for name, data in (("known", "images"), ("unknown", "grey")):
        options = {"data": str(place / data), "model": "support.networks:small"}
        extract(ExtractConfig(out=str(place / name), unknown=name == "unknown", **options))
    return place


@pytest.fixture
def stores(world: Path, tmp_path: Path) -> Path:
    for name in ("known", "unknown"):
        shutil.copytree(world / name, tmp_path / name)
    return tmp_path


def evaluated(place: str, out: Path, **options: object) -> dict[str, list[dict]]:
    """The samples that an evaluation keeps, by set."""
    known, unknown = join(place, "known"), join(place, "unknown")
    config = {"fit": known, "known": known, "unknown": {"grey": unknown}}
    config |= {"methods": ["msp", "ghost"], "draw_size": 10, "out": str(out)}
    run(EvaluateConfig.model_validate(config | options))
    samples = pq.read_table(out / "pictures.parquet").to_pylist()
    return {name: [each for each in samples if each["set"] == name] for name in ("known", "grey")}


def with_data(store: Path, data: str) -> None:
    """Let a store's manifest say that its images are elsewhere."""
    content = json.loads((store / "manifest.json").read_text())
    content.pop("seal")
    content["config"]["data"] = data
    (store / "manifest.json").write_bytes(sealed(content))


def test_the_report_shows_the_images_after_they_are_gone(world: Path, stores: Path, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for name in ("images", "grey"):
        shutil.copytree(world / name, tmp_path / "images" / name)
    for name, data in (("known", "images"), ("unknown", "grey")):
        with_data(stores / name, str(tmp_path / "images" / data))
    found = evaluated(str(stores), tmp_path / "out")
    for name in ("images", "known", "unknown"):
        shutil.rmtree(tmp_path / name)
    scores = {name: pq.read_table(tmp_path / "out" / "scores" / f"ghost__{name}.parquet") for name in ("known", "grey")}
    lowest = scores["known"].to_pandas().sort_values("score", kind="stable")
    highest = scores["grey"].to_pandas().sort_values("score", ascending=False, kind="stable")
    assert [each["key"] for each in found["known"]] == lowest["key"].tolist()[:8]
    assert [each["key"] for each in found["grey"]] == highest["key"].tolist()[:8]
    for sample in found["grey"]:
        assert sample["method"] == "ghost"
        shown = Image.open(io.BytesIO(sample["jpeg"]))
        assert max(shown.size) == 112
        assert np.allclose(shown.getpixel((10, 10)), (99 + int(sample["key"][0]), 99, 99), atol=6)
        if sample["beside_key"] is not None:
            assert sample["beside_key"].startswith(f"{sample['pred']}/")
    assert all(sample["jpeg"] for sample in found["known"])
    report(ReportConfig(folders=(str(tmp_path / "out"),), plots=False))
    assert (tmp_path / "out" / "report.html").read_text().count("data:image/jpeg") >= 16


def test_a_host_that_a_store_names_is_not_asked_and_a_place_that_the_caller_names_is(
    world: Path, stores: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        host = f"s3://bucket/images?endpoint_override=127.0.0.1:{server.getsockname()[1]}&scheme=http"
        with_data(stores / "known", host)
        with_data(stores / "unknown", host)
        found = evaluated(str(stores), tmp_path / "out", images={"grey": str(world / "grey")})
        with pytest.raises(BlockingIOError):
            server.accept()
    assert all(sample["jpeg"] is None for sample in found["known"])
    assert all(sample["jpeg"] for sample in found["grey"])
    with pytest.raises(InputError, match=r"^images 'gray': is not the name of a set — nearest: 'grey'"):
        evaluated(str(stores), tmp_path / "other", images={"gray": "x"})


def test_images_in_the_bucket_of_the_store_are_read_by_the_options_of_the_caller(
    world: Path, stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_store_in_environment(monkeypatch) as remote:
        with_data(stores / "known", f"s3://{remote.bucket}/images?endpoint_override=attacker.invalid:1&scheme=http")
        with_data(stores / "unknown", "s3://another-bucket/grey")
        for folder in (stores / "known", stores / "unknown", world / "images"):
            to = f"{remote.bucket}/{folder.name}"
            fs.copy_files(str(folder), to, destination_filesystem=remote.filesystem())
        found = evaluated(remote.uri(remote.bucket), tmp_path / "out")
        assert all(sample["jpeg"] for sample in found["known"])
        assert all(sample["jpeg"] is None for sample in found["grey"])
        assert not any("another-bucket" in path for _, path in remote.seen)
