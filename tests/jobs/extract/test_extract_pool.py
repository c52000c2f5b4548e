"""How many embedding actors there are: by CPUs, by memory, by GPUs, by what the work is worth, and as asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghost_ray.cluster import nodes
from ghost_ray.config import ExtractConfig
from ghost_ray.errors import InputError, JobFailed
from ghost_ray.jobs.extract import pool
from ghost_ray.jobs.extract.pool import Pool, plan_pool

GIB = 1 << 30
SLOW = 60.0  # seconds per image: always enough work
MANY = 10**7


@dataclass(frozen=True)
class Network:
    bytes: int
    seconds_an_image: float


def node(cpus: float, gib: float = math.inf, gpus: float = 0) -> dict[str, float]:
    return {"CPU": cpus, "GPU": gpus, "memory": gib * GIB}


def plan_on(
    patch: pytest.MonkeyPatch,
    alive: list[dict[str, float]],
    gib: float = 0.1,
    seconds: float = SLOW,
    images: int = 10_000,
    **settings: Any,
) -> Pool:
    """Plan for a cluster of these nodes: blocks of 100 images."""
    patch.delenv("RAY_ADDRESS", raising=False)
    for module in (pool, nodes):
        patch.setattr(module, "alive_nodes", lambda: alive)
    config = ExtractConfig(data="images", out="store", model="resnet18", **settings)
    return plan_pool(config, Network(int(gib * GIB), seconds), images, 100)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda *arguments, **settings: plan_on(monkeypatch, *arguments, **settings)


def test_an_actor_for_each_cpu(planned: Any) -> None:
    found = planned([node(8, 64), node(8, 64)])
    assert (found.min_actors, found.max_actors, found.threads) == (16, 16, 1)


def test_memory_bounds_the_copies_of_a_large_network(planned: Any) -> None:
    # Twice 2.5 GiB and three quarters each: five on the first node, none on the second.
    found = planned([node(16, 30), node(16, 4)], gib=2.5)
    assert found.max_actors == 5
    assert found.actor_memory == int(5.75 * GIB)
    assert found.threads == 6


def test_where_not_even_one_copy_fits_one_is_tried(planned: Any) -> None:
    found = planned([node(4, 2)], gib=2.5)
    assert (found.min_actors, found.max_actors, found.actor_memory) == (1, 1, 0)
    assert found.threads == 4


def test_little_work_is_not_worth_a_second_actor(planned: Any) -> None:
    assert planned([node(2)], seconds=0.0019).max_actors == 1
    assert planned([node(2)], seconds=0.0021).max_actors == 2
    assert planned([node(8, gpus=8)], images=4095).max_actors == 1
    assert planned([node(8, gpus=8)], images=4096).max_actors == 2


def test_what_is_asked_for_is_given(planned: Any) -> None:
    found = planned([node(4, 2)], gib=2.5, seconds=0.0, actors="2:3")
    assert (found.min_actors, found.max_actors, found.actor_memory) == (2, 3, 0)
    found = planned([node(8, gpus=2)], actors="1:5")
    assert (found.min_actors, found.max_actors) == (1, 5)


def test_a_gpu_each(planned: Any) -> None:
    found = planned([node(8, gpus=4), node(8, gpus=4), node(8)], images=MANY)
    assert (found.min_actors, found.max_actors, found.actor_gpus, found.actor_cpus) == (8, 8, 1, 0)


def test_a_named_cluster_may_grow_to_what_the_work_is_worth(planned: Any) -> None:
    found = planned([node(8, gpus=4)], images=40_960, address="auto")
    assert (found.min_actors, found.max_actors) == (4, 20)
    found = planned([node(4)], images=100, seconds=0.5, address="auto", gpus_per_actor=0)
    assert (found.min_actors, found.max_actors) == (1, 1), "one block"
    found = planned([node(4)], images=10_000, seconds=0.05, address="auto", gpus_per_actor=0)
    assert (found.min_actors, found.max_actors) == (4, 50)


def test_a_named_cluster_without_a_gpu_never_runs_on_cpus_unasked(planned: Any) -> None:
    with pytest.raises(InputError, match="the cluster has no GPU now") as said:
        planned([node(4)], address="auto")
    assert "`gpus_per_actor=1` waits for nodes with GPUs, `gpus_per_actor=0` uses CPUs" in str(said.value)
    assert planned([node(4)]).actor_gpus == 0, "this machine is what it is"


def test_this_machine_does_not_grow(planned: Any) -> None:
    with pytest.raises(InputError, match="gpus_per_actor '2': does not fit: this machine has 1 GPUs"):
        planned([node(4, gpus=1)], gpus_per_actor=2)
    with pytest.raises(InputError, match="actors '2': does not fit"):
        planned([node(4, gpus=1)], gpus_per_actor=1, actors="2")


@given(
    cpus=st.lists(st.integers(1, 128), min_size=1, max_size=8),
    gib=st.floats(0, 20),
    memory=st.floats(0.5, 500),
    actors=st.none() | st.integers(1, 300).map(str),
    images=st.integers(1, 10**7),
)
def test_an_actor_fits_on_a_node_and_leaves_room(
    cpus: list[int], gib: float, memory: float, actors: str | None, images: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found = plan_on(patch, [node(count, memory) for count in cpus], gib, images=images, actors=actors)
    assert 1 <= found.min_actors <= found.max_actors
    assert found.actor_cpus <= 0.4 * max(cpus)
    assert found.max_actors * found.actor_cpus <= 0.4 * sum(cpus) + 0.001 * found.max_actors
    assert found.actor_memory <= memory * GIB
    assert 1 <= found.threads <= max(cpus)


def test_waiting_ends(planned: Any, local_ray: None) -> None:
    with pytest.raises(JobFailed, match=r"waited 1 s for an actor with 5 GPUs without success: 0 of 1 could start"):
        planned([node(4, gpus=1)], address="auto", gpus_per_actor=5, wait_for_nodes=1)
