"""A local Ray for a module's tests, and the rule that CI skips nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from fault_table import fault  # noqa: F401 - a fixture of all fault tests
from hypothesis import settings

os.environ.pop("RAY_ADDRESS", None)
# Ray's workers import the functions that tests define from here.
os.environ["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]).rstrip(":")

# A busy machine must not fail a property; time is the benchmarks' business.
settings.register_profile("ghost_ray", deadline=None)
settings.load_profile("ghost_ray")


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """A Ray of two CPUs that jobs find already joined; a module's own, since the fault tests start clusters."""
    from ghost_ray.config import RayJobConfig
    from ghost_ray.runtime import ray_session

    with ray_session(RayJobConfig(num_cpus=2)):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Where GHOST_RAY_NO_SKIPS is set, a skipped test is a failed one: CI has everything that tests need."""
    report = yield
    if os.environ.get("GHOST_RAY_NO_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be: {report.longrepr}"
    return report
