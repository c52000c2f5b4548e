"""A local Ray shared by all tests that need one, which tests run in parallel, and the rule that CI skips nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from support.fault_table import fault  # noqa: F401 - a fixture of all fault tests
from support.scheduling import ByFile, beside_others, order, uses_ray

os.environ.pop("RAY_ADDRESS", None)
os.environ["GHOST_RAY_LOGICAL_GPUS"] = "1"  # the GPUs of the tests' clusters are only counted
# Ray's workers import from here what the tests define and hand to them.
_HERE = Path(__file__).parent
_FOLDERS = [_HERE, *sorted({file.parent for file in _HERE.rglob("test_*.py")} - {_HERE})]
os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, _FOLDERS), os.environ.get("PYTHONPATH", "")]).rstrip(":")

# A busy machine must not fail a property test; benchmarks measure time.
settings.register_profile("ghost_ray", deadline=None)
settings.load_profile("ghost_ray")

_shared_ray = contextlib.ExitStack()


@pytest.fixture(scope="module")
def local_ray() -> None:
    """A Ray of two CPUs that jobs find already joined. It runs until a test does not request it."""
    import ray

    from ghost_ray.cluster import ray_session
    from ghost_ray.config import RayJobConfig

    if not ray.is_initialized():
        with _stdout_kept():
            _shared_ray.enter_context(ray_session(RayJobConfig(num_cpus=2)))


def _end_shared_ray() -> None:
    with _stdout_kept():
        _shared_ray.close()


@contextlib.contextmanager
def _stdout_kept() -> Iterator[None]:
    """A session that starts and ends in different places redirects stdout twice; tests read theirs in between."""
    stdout = sys.stdout
    try:
        yield
    finally:
        sys.stdout = stdout


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=order)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return ByFile(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Around everything else, so that a test's own timeout does not run while it waits."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with beside_others(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Jobs of a test that requests no Ray find none: they run in threads, or start their own."""
    if not uses_ray(item):
        _end_shared_ray()


def pytest_sessionfinish() -> None:
    _end_shared_ray()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """If GHOST_RAY_NO_SKIPS is set, a skipped test fails: CI has everything that tests need."""
    report = yield
    if os.environ.get("GHOST_RAY_NO_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be: {report.longrepr}"
    return report
