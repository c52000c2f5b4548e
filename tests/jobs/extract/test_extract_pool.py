"""How many embedding actors there are: by CPUs, by memory, by work, and as asked for."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghost_ray.cluster import scaling
from ghost_ray.config import NetworkConfig
from ghost_ray.errors import InputError
from ghost_ray.jobs.extract import pool
from ghost_ray.jobs.extract.extract_plan import Demand
from ghost_ray.jobs.extract.pool import Pool, plan_pool

GIB = 1 << 30
SLOW = 60.0  # seconds per image: always enough work


def node(cpus: float, gib: float = math.inf, gpus: float = 0) -> dict[str, float]:
    return {"CPU": cpus, "GPU": gpus, "memory": gib * GIB}


def use_nodes(patch: pytest.MonkeyPatch, nodes: list[dict[str, float]]) -> None:
    for module in (pool, scaling):
        patch.setattr(module, "alive_nodes", lambda: nodes)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plan for a cluster of these nodes: 10,000 images in 100 blocks."""

    def plan(nodes: list[dict[str, float]], gib: float = 0.1, seconds: float = SLOW, **settings: Any) -> Pool:
        use_nodes(monkeypatch, nodes)
        config = NetworkConfig(model="resnet18", **settings)
        return plan_pool(config, Demand(int(gib * GIB), seconds), 10_000, 100, may_grow=False)

    return plan


def test_an_actor_for_each_cpu(planned: Any) -> None:
    found = planned([node(8, 64), node(8, 64)])
    assert (found.min_actors, found.max_actors, found.threads) == (16, 16, 1)


def test_memory_bounds_the_copies_of_a_large_network(planned: Any) -> None:
    # Twice 2.5 GiB and half a GiB each: five on the first node, none on the second.
    found = planned([node(16, 30), node(16, 4)], gib=2.5)
    assert found.max_actors == 5
    assert found.actor_memory == int(5.5 * GIB)
    assert found.threads == 6


def test_where_not_even_one_copy_fits_one_is_tried(planned: Any) -> None:
    found = planned([node(4, 2)], gib=2.5)
    assert (found.min_actors, found.max_actors, found.actor_memory) == (1, 1, 0)
    assert found.threads == 4


def test_little_work_is_not_worth_a_second_actor(planned: Any) -> None:
    assert planned([node(2)], seconds=0.0009).max_actors == 1
    assert planned([node(2)], seconds=0.0011).max_actors == 2


def test_what_is_asked_for_is_given(planned: Any) -> None:
    found = planned([node(4, 2)], gib=2.5, seconds=0.0, actors="2:3")
    assert (found.min_actors, found.max_actors, found.actor_memory) == (2, 3, 0)


def test_a_gpu_each(planned: Any) -> None:
    found = planned([node(8, gpus=4), node(8, gpus=4), node(8)])
    assert (found.min_actors, found.max_actors, found.actor_gpus, found.actor_cpus) == (8, 8, 1, 0)


class TestGrowingCluster:
    """The pool of a cluster that is small now, and may become larger."""

    @pytest.fixture
    def planned(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        def plan(now: list[dict[str, float]], largest: list[dict[str, float]], **settings: Any) -> Pool:
            use_nodes(monkeypatch, now)
            for module in (pool, scaling):
                monkeypatch.setattr(module, "largest_cluster", lambda: largest)
            config = NetworkConfig(model="resnet18", **settings)
            return plan_pool(config, Demand(GIB // 10, SLOW), 10_000, 100, may_grow=True)

        return plan

    def test_has_an_actor_for_each_gpu_that_may_come(self, planned: Any) -> None:
        found = planned([node(0), node(8, gpus=1)], [node(0), node(8, gpus=1), node(8, gpus=1), node(8, gpus=4)])
        assert (found.min_actors, found.max_actors, found.actor_gpus) == (6, 6, 1)

    def test_takes_a_gpu_where_one_may_come(self, planned: Any) -> None:
        with pytest.raises(InputError, match="gpus_per_actor '2': does not fit: an actor with 2 GPUs"):
            planned([node(0)], [node(0), node(8, gpus=1)], gpus_per_actor=2)
        assert planned([node(4)], [node(4), node(4)]).actor_gpus == 0

    def test_on_cpus_starts_with_what_fits_and_may_grow(self, planned: Any) -> None:
        found = planned([node(0), node(4)], [node(0), node(4), node(4), node(8)])
        assert (found.min_actors, found.max_actors) == (4, 16)
        assert found.min_actors * found.actor_cpus <= 0.4 * 4

    def test_is_what_was_asked_for(self, planned: Any) -> None:
        found = planned([node(8, gpus=2)], [node(8, gpus=8)], actors="1:5")
        assert (found.min_actors, found.max_actors) == (1, 5)


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
    nodes = [node(count, memory) for count in cpus]
    with pytest.MonkeyPatch.context() as patch:
        use_nodes(patch, nodes)
        config = NetworkConfig(model="resnet18", actors=actors)
        found = plan_pool(config, Demand(int(gib * GIB), SLOW), images, 100, may_grow=False)
    assert 1 <= found.min_actors <= found.max_actors
    assert found.actor_cpus <= 0.4 * max(cpus)
    assert found.max_actors * found.actor_cpus <= 0.4 * sum(cpus) + 0.001 * found.max_actors
    assert found.actor_memory <= memory * GIB
    assert 1 <= found.threads <= max(cpus)
    assert 2 <= found.writers <= max(2, found.max_actors)


def test_broken_gpus_are_left_out(planned: Any) -> None:
    found = planned([node(8, gpus=4)])
    assert found.without(0) == found
    assert (found.without(1).min_actors, found.without(1).max_actors) == (3, 3)
    assert found.without(4).max_actors == 1
    assert planned([node(8, gpus=4)], gpus_per_actor=2).without(1).max_actors == 1
    assert planned([node(8, gpus=1)], gpus_per_actor=0.25).without(1).max_actors == 1
