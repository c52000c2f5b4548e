"""A cluster that scales itself, from no worker at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.autoscaling import NO_TOKENS, Scaling, scaling_cluster
from support.clusters import several_raylets
from support.fault_table import Fault
from support.job_processes import Job, run, wait_until
from support.refits import write_checkpoint, write_pictures

from ghost_ray.cluster.nodes import reported_demand
from ghost_ray.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
IMAGES = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[Scaling]:
    with scaling_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, cluster: Scaling) -> Path:
    """Pictures, and the words of an extraction of them."""
    folder = tmp_path_factory.mktemp("scaling")
    write_pictures(folder / "images", IMAGES // 4, seed=1)
    write_checkpoint(folder / "weights.safetensors", folder / "images")
    return folder


def extraction(cluster: Scaling, place: Path, *words: str) -> list[str]:
    network = ["--model", "support.networks:noting", "--weights", str(place / "weights.safetensors")]
    where = ["--data", str(place / "images"), "--out", str(place / "store"), "--address", cluster.address]
    return ["extract", *where, *network, "--batch-size", "8", *words]


def test_a_cluster_without_a_gpu_is_never_taken_for_one_of_cpus(cluster: Scaling, place: Path) -> None:
    ended = run(*extraction(cluster, place), **NO_TOKENS)
    assert ended.code == 2
    assert "the cluster has no GPU now" in ended.errors
    assert "--gpus-per-actor 1 waits for nodes with GPUs, --gpus-per-actor 0 uses CPUs" in ended.errors


@pytest.mark.fault("extract", "more GPUs are asked for than the cluster can have")
def test_what_never_comes_is_waited_for_as_long_as_asked(cluster: Scaling, place: Path, fault: Fault) -> None:
    ended = run(*extraction(cluster, place, "--gpus-per-actor", "4", "--wait-for-nodes", "5s"), **NO_TOKENS)
    assert ended.code == 1
    assert "waiting for an actor with 4 GPUs; the cluster has 0 GPUs" in ended.errors
    assert "waited 5 s for an actor with 4 GPUs without success" in ended.errors.splitlines()[-1]
    fault.ended("the job waits for `--wait-for-nodes`, then exit 1 in one line with the demand that Ray reports")


@pytest.mark.fault("extract", "a cluster without a worker; two GPU nodes come a minute after they are asked for")
def test_jobs_wait_for_nodes_and_use_all_of_them(cluster: Scaling, place: Path, fault: Fault) -> None:
    ended = run(*extraction(cluster, place, "--gpus-per-actor", "1", "--actors", "2"), **NO_TOKENS)
    assert ended.result()["rows"] == IMAGES, ended.errors
    assert "waiting for 2 actors with 1 GPU each; the cluster has 0 GPUs" in ended.errors
    assert re.search(r"0 of 2 could start in 60 s; Ray reports .*GPU", ended.errors)
    assert len(list(cluster.notes.iterdir())) == 2
    store = str(place / "store")
    assert Store.open(store).rows == IMAGES
    run("fit", store, "--out", str(place / "model"), "--address", cluster.address, **NO_TOKENS).result()
    run("audit", store, "--out", str(place / "audit"), "--address", cluster.address, **NO_TOKENS).result()
    wait_until(lambda: not cluster.requests(), every=2)
    fault.ended("the job waits and says so; both take part; no request is left")


@pytest.mark.fault("extract", "the driver is killed while it waits for nodes")
def test_a_killed_job_asks_for_nothing_any_more(place: Path, tmp_path: Path, fault: Fault) -> None:
    import ray

    with several_raylets(1) as raylets:
        words = extraction(Scaling(raylets.address, tmp_path), place, "--gpus-per-actor", "1", "--overwrite")
        running = Job(*words)
        ray.init(address=raylets.address, log_to_driver=False)
        try:
            running.until(lambda: "'GPU': 1.0" in reported_demand(), every=1)
            running.kill()
            wait_until(lambda: "no resource demands" in reported_demand(), every=1)
        finally:
            ray.shutdown()
    fault.ended("what it asked the autoscaler for is withdrawn")
