"""A cluster that scales itself, from no worker at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.autoscaling import Scaling, scaling_cluster
from support.clusters import several_raylets
from support.fault_table import Fault
from support.job_processes import Job, run, wait_until
from support.refits import write_checkpoint, write_pictures

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


def test_what_no_node_type_could_hold_is_refused_without_waiting(cluster: Scaling, place: Path) -> None:
    for words, option in ((("--gpus-per-actor", "4"), "--gpus-per-actor '4'"), (("--actors", "3"), "--actors '3'")):
        ended = run(*extraction(cluster, place, *words))
        assert ended.code == 2
        assert f"{option}: does not fit" in ended.errors
        assert "waiting" not in ended.errors


@pytest.mark.fault("extract", "a cluster without a worker; two GPU nodes come a minute after they are asked for")
def test_jobs_wait_for_nodes_and_use_all_of_them(cluster: Scaling, place: Path, fault: Fault) -> None:
    ended = run(*extraction(cluster, place))
    assert ended.result()["rows"] == IMAGES, ended.errors
    assert "waiting for nodes to join" in ended.errors
    assert len(list(cluster.notes.iterdir())) == 2
    store = str(place / "store")
    assert Store.open(store).rows == IMAGES
    run("fit", store, "--out", str(place / "model"), "--address", cluster.address).result()
    run("audit", store, "--out", str(place / "audit"), "--address", cluster.address).result()
    wait_until(lambda: not cluster.requests(), every=2)
    fault.ended("the job waits and says so; both take part; no request is left")


@pytest.mark.fault("extract", "the driver is killed while it waits for nodes")
def test_a_killed_job_asks_for_nothing_any_more(place: Path, tmp_path: Path, fault: Fault) -> None:
    import ray

    def asked() -> set[str]:
        return {group["state"] for group in ray.util.placement_group_table().values()}

    with several_raylets(1) as raylets:
        running = Job(*extraction(Scaling(raylets.address, tmp_path), place, "--gpus-per-actor", "1", "--overwrite"))
        ray.init(address=raylets.address, log_to_driver=False)
        try:
            running.until(lambda: "PENDING" in asked())
            running.kill()
            wait_until(lambda: asked() <= {"REMOVED"})
        finally:
            ray.shutdown()
    fault.ended("what it asked the autoscaler for is withdrawn")
