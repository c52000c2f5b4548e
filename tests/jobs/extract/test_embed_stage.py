"""An embedding actor without Ray around it: what becomes of blocks when the process that holds the network fails."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.failing_networks import FITS
from support.networks import DIMENSIONS, small

from ghost_ray.backbone import load_backbone
from ghost_ray.config.policies import NETWORK_LOSSES, Stage
from ghost_ray.errors import JobFailed
from ghost_ray.jobs.extract.embed_stage import Embed, _cut
from ghost_ray.jobs.extract.gate import Gate
from ghost_ray.jobs.extract.losses import Device, Losses, Verdict
from ghost_ray.jobs.extract.network_process import Task
from ghost_ray.jobs.extract.pixels import Preprocessing, split_transform
from ghost_ray.jobs.extract.recipe import Recipe

BATCH = 8


class Witness:
    """Takes the place of the tally."""

    def __init__(self, verdict: Verdict = Verdict.RELEASE) -> None:
        self.causes: list[str] = []
        self.verdict = verdict

    def joined(self) -> None:
        pass

    def lost(self, cause: str) -> None:
        self.causes.append(cause)

    def stuck(self, block: pa.Table) -> Verdict:
        return self.verdict


@pytest.fixture(scope="module")
def preprocessing() -> Preprocessing:
    return split_transform(load_backbone(small()).transform)


def task_of(network: str, preprocessing: Preprocessing, batch_size: int = BATCH) -> Task:
    recipe = Recipe(f"support.{network}", None, "fp32", False, False, None)
    return Task(recipe, preprocessing.second_half(), batch_size, threads=1, gpus=0)


def actor(network: str, preprocessing: Preprocessing, to: Witness, batch_size: int = BATCH) -> Embed:
    return Embed(task_of(network, preprocessing, batch_size), DIMENSIONS, to)  # type: ignore[arg-type]


def block_of(pictures: np.ndarray, first: int = 0) -> pa.Table:
    count = len(pictures)
    flat = pa.array(pictures.reshape(-1))
    return pa.table(
        {
            "key": [f"{first + row}.jpg" for row in range(count)],
            "label": np.zeros(count, np.int32),
            "portion": np.zeros(count, np.int32),
            "place": np.arange(first, first + count),
            "pixels": pa.FixedSizeListArray.from_arrays(flat, pictures[0].size),
            "stage": pa.nulls(count, pa.string()),
            "error": pa.nulls(count, pa.string()),
            "read_seconds": np.zeros(count, np.float32),
            "decode_seconds": np.zeros(count, np.float32),
        }
    )


_CHILD = f"""
import pickle, sys
from ghost_ray.jobs.extract.embed_stage import Embed
class Witness:
    joined = lost = lambda *_: None
task, block = pickle.load(sys.stdin.buffer)
print(Embed(task, {DIMENSIONS}, Witness())(block).num_rows, sorted({{"timm", "torch"}} & set(sys.modules)))
"""


def test_an_actor_does_without_torch(preprocessing: Preprocessing, pictures: np.ndarray) -> None:
    """Where there are many, each would take seconds for it when its first block is done, and half a gigabyte."""
    task = Task(
        Recipe("support.networks:small", None, "fp32", False, False, None), preprocessing.second_half(), 8, 1, 0
    )
    given = pickle.dumps((task, block_of(pictures)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(
        [sys.executable, "-c", _CHILD], input=given, env=environment, capture_output=True, check=True
    )
    assert ended.stdout.decode().split("\n")[0] == f"{len(pictures)} []"


@pytest.fixture
def pictures(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 255, (40, 32, 32, 3), np.uint8)


@torch.inference_mode()
def by_hand(pictures: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    embedding, _ = load_backbone(small()).embed(preprocessing.finish(torch.from_numpy(pictures)))
    return embedding.numpy()


def vectors(rows: pa.Table) -> np.ndarray:
    return rows["embedding"].combine_chunks().flatten().to_numpy().reshape(rows.num_rows, -1)


def test_a_batch_that_does_not_fit_is_halved(pictures: np.ndarray, preprocessing: Preprocessing) -> None:
    witness = Witness()
    rows = actor("failing_networks:short_of_memory", preprocessing, witness, batch_size=3 * FITS)(block_of(pictures))
    np.testing.assert_allclose(vectors(rows), by_hand(pictures, preprocessing), atol=1e-6)
    assert not any(rows["failed"].to_pylist())
    assert set(rows["batch_size"].to_pylist()) == {12}
    assert not witness.causes


def test_the_pictures_that_kill_are_found(pictures: np.ndarray, preprocessing: Preprocessing) -> None:
    pictures[17] = 255
    witness = Witness()
    embed = actor("failing_networks:dies_of_white", preprocessing, witness)
    blocks = [block_of(pictures[:20]), block_of(pictures[20:], first=20)]
    with ThreadPoolExecutor(2) as threads:  # as Ray calls it; the second block may be taken along by the first
        rows = pa.concat_tables(threads.map(embed, blocks))
    failed = rows.filter(rows["failed"])
    assert failed["key"].to_pylist() == ["17.jpg"]
    assert failed["stage"].to_pylist() == [Stage.EMBED]
    assert "SIGSEGV" in failed["error"][0].as_py()
    sound = np.delete(np.arange(40), 17)
    np.testing.assert_allclose(vectors(rows)[sound], by_hand(pictures[sound], preprocessing), atol=1e-6)
    assert len(witness.causes) == 3  # the block, the piece of it, the picture


def test_what_fails_on_everything_is_given_up(pictures: np.ndarray, preprocessing: Preprocessing) -> None:
    witness, cause = Witness(), "CUDA error: an illegal memory access"
    embed = actor("failing_networks:one_broken_device", preprocessing, witness)
    given_back = embed(block_of(pictures))
    assert given_back.num_rows == 0
    assert len(witness.causes) == NETWORK_LOSSES
    assert all(cause in line and "\n" not in line for line in witness.causes)
    witness.verdict = Verdict.STOP
    with pytest.raises(JobFailed, match=cause):
        embed(block_of(pictures))
    assert len(witness.causes) == NETWORK_LOSSES


@given(st.integers(1, 10_000), st.integers(0, 1000))
def test_pieces_are_the_whole(length: int, start: int) -> None:
    pieces = _cut(slice(start, start + length))
    assert [row for piece in pieces for row in range(piece.start, piece.stop)] == list(range(start, start + length))
    assert len(pieces) == min(8, length)
    assert max(piece.stop - piece.start for piece in pieces) - min(piece.stop - piece.start for piece in pieces) <= 1


class TestGate:
    @pytest.fixture
    def threads(self) -> Iterator[ThreadPoolExecutor]:
        with ThreadPoolExecutor(8) as pool:
            yield pool

    def test_side_by_side(self, threads: ThreadPoolExecutor) -> None:
        gate, meeting = Gate(), threading.Barrier(3)

        def meet(_: int) -> int:
            with gate.beside_others():
                return meeting.wait(60)

        assert sorted(threads.map(meet, range(3))) == [0, 1, 2]

    def test_alone(self, threads: ThreadPoolExecutor) -> None:
        gate, inside, seen = Gate(), [0], []

        def enter(number: int) -> None:
            with gate.alone() if number % 2 else gate.beside_others():
                inside[0] += 1
                if number % 2:
                    seen.append(inside[0])
                inside[0] -= 1

        list(threads.map(enter, range(400)))
        assert seen == [1] * 200


class TestLosses:
    CPU = Device("node", ())

    def test_waits_for_the_rest_and_then_releases(self) -> None:
        losses = Losses(total=100, spare=1)
        losses.joined("a")
        losses.joined("b")
        assert losses.stuck("a", self.CPU, "x", 10, done=50, now=0) is Verdict.WAIT
        assert losses.stuck("a", self.CPU, "y", 10, done=79, now=1000) is Verdict.WAIT
        assert losses.stuck("a", self.CPU, "x", 10, done=80, now=1001) is Verdict.RELEASE
        assert losses.stuck("a", self.CPU, "y", 10, done=80, now=1001) is Verdict.RELEASE

    def test_more_than_may_be_lost(self) -> None:
        losses = Losses(total=100, spare=1)
        assert losses.stuck("a", self.CPU, "x", 10, done=0, now=0) is Verdict.WAIT
        assert losses.stuck("b", self.CPU, "y", 10, done=0, now=0) is Verdict.STOP

    def test_nobody_else_comes(self) -> None:
        losses = Losses(total=100, spare=4)
        losses.joined("a")
        assert losses.stuck("a", self.CPU, "x", 10, done=0, now=0) is Verdict.WAIT
        assert losses.stuck("a", self.CPU, "x", 10, done=0, now=61) is Verdict.STOP
        losses.joined("b")
        assert losses.stuck("a", self.CPU, "x", 10, done=0, now=62) is Verdict.WAIT
