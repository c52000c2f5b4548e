"""Extraction on devices that fail: out of memory, broken, or with a network that ends its process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.clusters import counted_gpus
from support.failing_networks import FITS
from support.fault_table import Fault
from support.job_processes import Ended, run
from support.pictures import write_folder
from test_extract import rows_of
from test_extract_faults import arguments

from ghost_ray.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WHITE = "cat/white.png"
REFUSED = "exit 1 in one line with the cause; finished work is kept"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("devices") / "images"
    write_folder(root, 30)
    Image.new("RGB", (40, 40), "white").save(root / WHITE)
    return root


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with counted_gpus(2) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(data: Path, address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "store"
    run(*arguments(data, out, "support.networks:small", address=address)).result()
    return out


def extract(network: str, data: Path, out: Path, address: str, **options: str) -> Ended:
    given = {"address": address, "actors": "2", "gpus_per_actor": "1", **options}
    return run(*arguments(data, out, f"support.failing_networks:{network}", **given))


def check(out: Path, undisturbed: Path, without: str | None = None) -> None:
    expected, found = rows_of(undisturbed), rows_of(out)
    expected.pop(without, None)
    assert found.keys() == expected.keys()
    for key, (label, prediction, vector) in expected.items():
        assert found[key][:2] == (label, prediction)
        np.testing.assert_allclose(found[key][2], vector, atol=1e-6)


def check_refused(ended: Ended, cause: str) -> None:
    assert ended.code == 1
    assert cause in ended.errors.splitlines()[-1]
    assert "Traceback" not in ended.errors


@pytest.mark.fault("extract", "a batch does not fit into the device's memory")
def test_out_of_memory(data: Path, address: str, undisturbed: Path, tmp_path: Path, fault: Fault) -> None:
    out = tmp_path / "store"
    extract("short_of_memory", data, out, address, batch_size=str(4 * FITS)).result()
    check(out, undisturbed)
    assert Store.open(str(out)).manifest.batch_size == FITS
    fault.ended("it is halved until it fits; the job continues; the same result")


@pytest.mark.fault("extract", "a GPU is broken")
def test_a_broken_device(data: Path, address: str, tmp_path: Path, fault: Fault) -> None:
    ended = extract("broken_device", data, tmp_path / "store", address)
    check_refused(ended, "CUDA error: an illegal memory access was encountered")
    fault.ended(REFUSED)


@pytest.mark.fault("extract", "an image kills the worker that decodes it")
def test_an_image_that_kills_its_decoder(
    data: Path, address: str, undisturbed: Path, tmp_path: Path, fault: Fault
) -> None:
    out = tmp_path / "store"
    extract("decoder_dies_of_white", data, out, address, max_failures="0.1").result()
    check(out, undisturbed, without=WHITE)
    (failure,) = pq.read_table(out / "failures.parquet").to_pylist()
    assert (failure["key"], failure["stage"]) == (WHITE, "decode")
    assert "SIGSEGV" in failure["error"]
    fault.ended("it is found and recorded as a failure; all others are embedded")


@pytest.mark.fault("extract", "the network's process always dies")
def test_a_network_that_always_dies(data: Path, address: str, tmp_path: Path, fault: Fault) -> None:
    check_refused(extract("always_dies", data, tmp_path / "store", address), "SIGSEGV")
    fault.ended(REFUSED)


@pytest.mark.fault("extract", "the network hangs")
def test_a_network_that_hangs(data: Path, tmp_path: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GHOST_RAY_FORWARD_SECONDS", "2")
    words = arguments(data, tmp_path / "store", "support.failing_networks:hangs", actors="1", num_cpus="2")
    check_refused(run(*words), "a forward pass did not return within 2 s")
    fault.ended("its process is ended and started again; then exit 1 in one line; finished work is kept")


@pytest.mark.fault("extract", "a CPU traps instructions that it announces, in bf16")
def test_a_trapped_instruction(data: Path, tmp_path: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # that only the network of this test dies of it
    words = arguments(data, tmp_path / "store", "support.failing_networks:trapped_instruction", precision="bf16")
    ended = run(*words)
    check_refused(ended, "SIGILL")
    assert "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 on all nodes, or use fp32" in ended.errors.splitlines()[-1]
    fault.ended("exit 1 in one line with the variable to set; finished work is kept")
