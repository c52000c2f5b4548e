"""One local Ray for the whole test session, and small stores to work on."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

os.environ.pop("RAY_ADDRESS", None)


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """A Ray of two CPUs that jobs find already joined."""
    from ghost_ray.config import RayJobConfig
    from ghost_ray.runtime import ray_session

    with ray_session(RayJobConfig(num_cpus=2)):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
