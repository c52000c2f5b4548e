"""The network of an actor without Ray around it: batches that do not fit, and processes that die or hang."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from support.failing_networks import FITS
from support.networks import DIMENSIONS, small

from ghost_ray.backbone import load_backbone
from ghost_ray.config.limits import ACTOR_DEATHS
from ghost_ray.errors import JobFailed
from ghost_ray.jobs.extract.blocks import Block, BlockStats, BlockWriter, block_schema
from ghost_ray.jobs.extract.decode import Preprocessing, split_transform
from ghost_ray.jobs.extract.embed import Embed, EmbedSpec, NetworkSpec

BATCH = 8


@pytest.fixture(scope="module")
def preprocessing() -> Preprocessing:
    return split_transform(load_backbone(small()).transform)


@pytest.fixture
def pictures(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 255, (40, 32, 32, 3), np.uint8)


def spec_of(network: str, preprocessing: Preprocessing, batch_size: int = BATCH, gpus: float = 0) -> EmbedSpec:
    named = NetworkSpec(f"support.{network}", None, "fp32", False, False, None)
    return EmbedSpec(named, preprocessing.second_half(), DIMENSIONS, batch_size, threads=1, gpus=gpus)


def writer(folder: Path) -> BlockWriter:
    return BlockWriter(block_schema(DIMENSIONS), str(folder), "a")


def block_of(pictures: np.ndarray, failed: int | None = None) -> Block:
    count = len(pictures)
    stages = ["decode" if row == failed else None for row in range(count)]
    images = {
        "key": [f"{row}.jpg" for row in range(count)],
        "label": np.zeros(count, np.int32),
        "group": pa.nulls(count, pa.string()),
        "position": np.arange(count),
        "pixels": pa.FixedSizeListArray.from_arrays(pa.array(pictures.reshape(-1)), pictures[0].size),
        "stage": pa.array(stages, pa.string()),
        "error": pa.array(stages, pa.string()),
    }
    return Block(0, pa.table(images))


def rows_in(folder: Path) -> pa.Table:
    (file,) = (folder / "blocks").iterdir()
    return pa.ipc.open_file(file).read_all()


@torch.inference_mode()
def by_hand(pictures: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    embedding, _ = load_backbone(small()).embed(preprocessing.finish(torch.from_numpy(pictures)))
    return embedding.numpy()


def vectors(rows: pa.Table) -> np.ndarray:
    return rows["embedding"].combine_chunks().flatten().to_numpy().reshape(rows.num_rows, -1)


def test_rows_are_those_of_the_network(pictures: np.ndarray, preprocessing: Preprocessing, tmp_path: Path) -> None:
    stats = Embed(spec_of("networks:small", preprocessing), writer(tmp_path))(block_of(pictures, failed=3))
    assert (stats.images, stats.failures, stats.by_stage) == (40, 1, {"decode": 1})
    assert stats.examples == [("3.jpg", "decode", "decode", 1)]
    assert stats.seconds.keys() == {"embed", "write"}
    rows = rows_in(tmp_path)
    sound = np.delete(np.arange(40), 3)
    np.testing.assert_allclose(vectors(rows)[sound], by_hand(pictures[sound], preprocessing), atol=1e-6)
    assert not vectors(rows)[3].any()


def test_a_batch_that_does_not_fit_is_halved(
    pictures: np.ndarray, preprocessing: Preprocessing, tmp_path: Path
) -> None:
    spec = spec_of("failing_networks:short_of_memory", preprocessing, batch_size=3 * FITS)
    stats = Embed(spec, writer(tmp_path))(block_of(pictures))
    assert stats.failures == 0
    rows = rows_in(tmp_path)
    np.testing.assert_allclose(vectors(rows), by_hand(pictures, preprocessing), atol=1e-6)


def test_an_error_of_the_network_is_one_line(
    pictures: np.ndarray, preprocessing: Preprocessing, tmp_path: Path
) -> None:
    embed = Embed(spec_of("failing_networks:broken_device", preprocessing), writer(tmp_path))
    with pytest.raises(
        JobFailed, match="the network failed: RuntimeError: CUDA error: an illegal memory access"
    ) as said:
        embed(block_of(pictures))
    assert "\n" not in str(said.value)


_PROCESS = """
import pickle, sys
from ghost_ray.jobs.extract import embed
embed._actor_id = lambda: "the-same-actor"
spec, write, block = pickle.load(sys.stdin.buffer)
print(embed.Embed(spec, write, True)(block).images)
"""


def run_actor(spec: EmbedSpec, folder: Path, block: Block, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """One of the processes that Ray starts for an actor."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(folder)}
    given = pickle.dumps((spec, writer(folder / "out"), block))
    words = [sys.executable, "-c", _PROCESS]
    return subprocess.run(words, input=given, env=environment | variables, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("network", "gpus", "cause", "variables"),
    [
        pytest.param("always_dies", 0, "the network's process ended with SIGSEGV", {}, id="signal"),
        pytest.param("broken_device", 1, "the network failed: RuntimeError: CUDA error", {}, id="device"),
        pytest.param(
            "hangs", 0, "a forward pass did not return within 1 s", {"GHOST_RAY_FORWARD_SECONDS": "1"}, id="hang"
        ),
    ],
)
def test_processes_that_die_in_a_row_end_the_job_with_the_cause(
    network: str,
    gpus: float,
    cause: str,
    variables: dict[str, str],
    pictures: np.ndarray,
    preprocessing: Preprocessing,
    tmp_path: Path,
) -> None:
    spec = spec_of(f"failing_networks:{network}", preprocessing, gpus=gpus)
    variables |= {"GHOST_RAY_LOGICAL_GPUS": "1"}
    for _ in range(ACTOR_DEATHS):
        ended = run_actor(spec, tmp_path, block_of(pictures), **variables)
        assert ended.returncode != 0
        assert b"JobFailed" not in ended.stderr
    refused = run_actor(spec, tmp_path, block_of(pictures), **variables).stderr.decode()
    assert f"{cause}" in refused.splitlines()[-1]
    assert f"{ACTOR_DEATHS} times in a row — finished work is kept" in refused.splitlines()[-1]


def test_a_block_that_is_computed_forgets_the_deaths_before(
    pictures: np.ndarray, preprocessing: Preprocessing, tmp_path: Path
) -> None:
    block = block_of(pictures)
    dying, sound = (spec_of(name, preprocessing) for name in ("failing_networks:always_dies", "networks:small"))
    for spec in [dying] * (ACTOR_DEATHS - 1) + [sound] + [dying] * ACTOR_DEATHS:
        ended = run_actor(spec, tmp_path, block)
        assert (ended.returncode == 0) == (spec is sound)
        assert b"in a row" not in ended.stderr


def test_stats_travel_as_a_row() -> None:
    stats = BlockStats(3, 1, [("a", "read", "gone", 1)], {"read": 1}, {"read": 0.5}, True)
    found = BlockStats.from_text(stats.to_row()["stats"][0].as_py())
    assert (found.images, found.by_stage, found.ends_listing) == (3, {"read": 1}, True)
