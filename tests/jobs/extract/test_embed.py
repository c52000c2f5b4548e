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


# ---- processes that Ray starts for an actor, one after the other

_ACTOR = "the-same-actor"
_LIFE = """
import os, signal, sys
from ghost_ray.jobs.extract.embed import Lives
lives = Lives(sys.argv[1])
print(lives.deaths, lives.cause)
exec(sys.argv[2])
"""
_NETWORK = """
import pickle, sys
from ghost_ray.jobs.extract import embed
embed._actor_id = lambda: sys.argv[1]
embed.ACTOR_DEATHS = int(sys.argv[2])
spec, write, block = pickle.load(sys.stdin.buffer)
actor = embed.Embed(spec, write, True)
print(actor(block).images, actor._lives.deaths)
"""


def run_process(
    code: str, *words: str, folder: Path, given: bytes = b"", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(folder)}
    command = [sys.executable, "-c", code, _ACTOR, *words]
    return subprocess.run(command, input=given, env=environment | variables, capture_output=True, check=False)


def die(folder: Path, how: str) -> str:
    """What a process of the actor knows of those before it, which then dies."""
    return run_process(_LIFE, how, folder=folder).stdout.decode().strip()


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the network's process ended with SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGILL)", "the network's process ended with SIGILL"),
        ("os.abort()", "the network's process ended with SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "the network's process was killed, as when memory runs out"),
        ("lives.end('the device is broken')", "the device is broken"),
    ],
)
def test_a_process_knows_how_those_before_it_died(how: str, cause: str, tmp_path: Path) -> None:
    die(tmp_path, how)
    assert die(tmp_path, "pass") == f"1 {cause}"


def test_deaths_are_counted_until_a_process_ends_by_itself(tmp_path: Path) -> None:
    counts = [die(tmp_path, how).split()[0] for how in ("os.abort()", "os.abort()", "pass", "pass")]
    assert counts == ["0", "1", "2", "0"]


def run_network(network: str, deaths: int, folder: Path, preprocessing: Preprocessing, block: Block) -> tuple[int, str]:
    """Exit code and last line of a process that allows so many deaths in a row."""
    given = pickle.dumps((spec_of(network, preprocessing), writer(folder / "out"), block))
    ended = run_process(
        _NETWORK, str(deaths), folder=folder, given=given, GHOST_RAY_FORWARD_SECONDS="1", GHOST_RAY_LOGICAL_GPUS="1"
    )
    lines = (ended.stdout + ended.stderr).decode().splitlines()
    return ended.returncode, lines[-1] if lines else ""


def test_a_network_that_hangs_ends_its_process_and_at_last_the_job(
    pictures: np.ndarray, preprocessing: Preprocessing, tmp_path: Path
) -> None:
    block = block_of(pictures)
    code, said = run_network("failing_networks:hangs", 1, tmp_path, preprocessing, block)
    assert code == 1
    assert "JobFailed" not in said
    _, said = run_network("failing_networks:hangs", 1, tmp_path, preprocessing, block)
    assert "JobFailed" in said
    assert "a forward pass did not return within 1 s, 1 times in a row — finished work is kept" in said


def test_a_block_that_is_computed_forgets_the_deaths_before(
    pictures: np.ndarray, preprocessing: Preprocessing, tmp_path: Path
) -> None:
    for _ in range(ACTOR_DEATHS - 1):
        die(tmp_path, "os.abort()")
    found = run_network("networks:small", ACTOR_DEATHS, tmp_path, preprocessing, block_of(pictures))
    assert found == (0, "40 0")


def test_stats_travel_as_a_row() -> None:
    stats = BlockStats(3, 1, [("a", "read", "gone", 1)], {"read": 1}, {"read": 0.5}, True)
    found = BlockStats.from_text(stats.to_row()["stats"][0].as_py())
    assert (found.images, found.by_stage, found.ends_listing) == (3, {"read": 1}, True)
