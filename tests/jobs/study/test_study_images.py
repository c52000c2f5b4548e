"""Studies of networks from images and from arrays, whole and killed."""

from __future__ import annotations

import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from support.job_processes import Job
from support.job_processes import run as run_job
from support.refits import write_checkpoint, write_world
from support.stores import Toy

from ghost_ray.config import EvaluateConfig, ImportConfig
from ghost_ray.jobs import evaluate, importing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
KILLS, KILLS_OF_EXTRACTIONS = 5, 2
# Of these every byte is compared; manifests and the page say when they were made, and stores how long it took.
COMPARED = ("*.parquet", "results.json", "metrics.json", "significance.json", "*.safetensors", "tables/*")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, two checkpoints, and arrays of a third network as stores."""
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    write_checkpoint(folder / "other.safetensors", folder / "train", seed=1)
    rng = np.random.default_rng(0)
    toy = Toy.make(rng, classes=4, dimensions=6)
    for name, (embedding, label) in {
        "fit": toy.known(rng, 200),
        "known": toy.known(rng, 80),
        "violet": (toy.unknown(rng, 60), np.full(60, -1)),
    }.items():
        place = folder / "arrays" / name
        place.mkdir(parents=True)
        for kind, array in {"features": embedding, "logits": toy.logits(embedding), "labels": label}.items():
            np.save(place / f"{kind}.npy", array)
        files = {kind: str(place / f"{kind}.npy") for kind in ("features", "logits", "labels")}
        unknown = name == "violet"
        if unknown:
            del files["labels"]
        importing.run(ImportConfig(**files, unknown=unknown, model="arrays", out=str(folder / "stores" / name)))
    return folder


@pytest.fixture(scope="module")
def from_images(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of images and arrays that nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    run_job("study", "--config", _settings(world, folder, ("one", "arrays"))).result()
    return folder


def _settings(world: Path, out: Path, networks: tuple[str, ...]) -> str:
    images = {"model": "support.networks:small", "batch_size": 16}
    known: dict[str, Any] = {
        "one": {**images, "weights": str(world / "weights.safetensors")},
        "other": {**images, "weights": str(world / "other.safetensors")},
        "arrays": {
            "stores": {
                "fit": str(world / "stores" / "fit"),
                "known": str(world / "stores" / "known"),
                "unknown": {"violet": str(world / "stores" / "violet")},
            }
        },
    }
    known["again"] = known["arrays"]
    content = {
        "out": str(out / "study"),
        "networks": {name: known[name] for name in networks},
        "fit": {"data": str(world / "train")},
        "known": {"data": str(world / "test")},
        "unknown": {"violet": {"data": str(world / "violet")}},
        "methods": ["ghost", "msp", "maxlogit"],
        "draws": 3,
        "draw_size": 20,
        "plots": False,
    }
    out.mkdir(exist_ok=True)
    (out / "study.yaml").write_text(yaml.safe_dump(content))
    return str(out / "study.yaml")


def _bytes(study: Path) -> dict[str, bytes]:
    files = {file for pattern in COMPARED for file in study.rglob(pattern)}
    return {str(file.relative_to(study)): file.read_bytes() for file in files if ".work" not in file.parts}


def test_killed_at_random_moments_it_ends_in_the_same_bytes(world: Path, tmp_path: Path) -> None:
    start = time.monotonic()
    whole = tmp_path / "whole"
    run_job("study", "--config", _settings(world, whole, ("arrays", "again"))).result()
    took = time.monotonic() - start
    expected = _bytes(whole / "study")
    assert {"results.parquet", "results.json", "tables/overall.tex"} <= expected.keys()

    killed = tmp_path / "killed"
    settings = _settings(world, killed, ("arrays", "again"))
    moments = random.Random(0)
    for _ in range(KILLS):
        job = Job("study", "--config", settings)
        end = time.monotonic() + moments.uniform(0.1, 0.9) * took
        while job.running() and time.monotonic() < end:
            time.sleep(0.1)
        job.kill_everything()
    run_job("study", "--config", settings).result()
    found = _bytes(killed / "study")
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []


def test_killed_while_it_extracts_it_ends_in_the_same_bytes(world: Path, from_images: Path, tmp_path: Path) -> None:
    settings = _settings(world, tmp_path, ("one", "arrays"))
    study = tmp_path / "study"
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    kills = 0
    while kills < KILLS_OF_EXTRACTIONS:
        job = Job("study", "--config", settings)
        # A fast machine may have finished the last of the three stores between two kills.
        job.until(lambda: [*study.glob("one/stores/.*.partial")] or [*study.glob("one/model")])
        if not [*study.glob("one/stores/.*.partial")]:
            job.kill_everything()
            break
        time.sleep(moments.uniform(0, 0.4))  # listing, embedding or sorting
        job.kill_everything()
        kills += 1
        assert not (study / "results.json").exists(), f"seed {seed}"
    assert kills, f"seed {seed}"
    run_job("study", "--config", settings).result()
    expected, found = _bytes(from_images / "study"), _bytes(study)
    assert any(name.startswith("one/stores/") for name in expected)
    assert found.keys() == expected.keys(), f"seed {seed}"
    assert [name for name in found if found[name] != expected[name]] == [], f"seed {seed}"


def test_every_cell_from_images_is_that_of_evaluate_and_one_more_network_is_all_that_is_computed(
    world: Path, from_images: Path, tmp_path: Path
) -> None:
    shutil.copytree(from_images, tmp_path, dirs_exist_ok=True)
    ended = run_job("study", "--config", _settings(world, tmp_path, ("one", "arrays", "other")))
    answer = ended.result()
    done = [line.removeprefix("study: ") for line in ended.errors.splitlines() if line.startswith("study: ")]
    assert [line.partition(":")[0] for line in done] == ["other"] * 6
    study = tmp_path / "study"
    cells = pq.read_table(study / "results.parquet").to_pandas().set_index(["network", "unknown", "method", "metric"])
    for network in ("one", "other"):
        stores = {folder.name.rpartition("-")[0]: str(folder) for folder in (study / network / "stores").iterdir()}
        config = EvaluateConfig(
            fit=stores["fit"],
            known=stores["known"],
            unknown={"violet": stores["unknown.violet"]},
            methods=("ghost", "msp", "maxlogit"),
            draws=3,
            draw_size=20,
            out=str(tmp_path / f"alone-{network}"),
        )
        for result in evaluate.run(config)["results"]:
            for metric in ("auroc", "auoscr", "fpr95", "f_at_c95", "ccr_cv"):
                assert cells.loc[network, "violet", result["method"], metric]["value"] == result[metric]
    page = (study / "report.html").read_text()
    assert page.count("data:image/jpeg;base64,") >= 3 * 8  # the arrays' network has none
    assert len(page) < 2_000_000
    assert json.loads((study / "results.json").read_text()) == answer["study"]
