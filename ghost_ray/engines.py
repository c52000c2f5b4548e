"""What runs the tasks of a job: a Ray cluster, or the threads of this process."""

from __future__ import annotations

import concurrent.futures
import functools
from collections.abc import Callable
from typing import Any, Protocol

from ghost_ray.errors import GhostRayError, JobFailed, one_line


class Engine(Protocol):
    """Runs functions elsewhere. A handle stands for a result to come; handles and ``put`` values may be arguments."""

    workers: int

    def put(self, value: Any) -> Any:
        """Make a value cheap to hand to many tasks."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Start ``function(*arguments)``; return its handle."""

    def merge(self, function: Callable[[list[Any]], Any], handles: list[Any]) -> Any:
        """Start ``function(results)`` on the results of ``handles``, a list that it may empty; return its handle."""

    def wait(self, handle: Any) -> None:
        """Wait until a task has ended."""

    def result(self, handle: Any) -> Any:
        """Wait for a result, or raise what its task raised."""


class RayEngine:
    """Tasks of the connected Ray; one whose worker dies is run again.

    None is ever cancelled: a task that ends at the moment it is cancelled trips an assertion of Ray 2.60 ("Tried to
    complete task that was not pending"), which ends the driver without a word. What a failed job leaves behind is at
    most a window of tasks, and they end with it.
    """

    def __init__(self, num_cpus: float, workers: int) -> None:
        import ray

        self._ray = ray
        self._num_cpus = num_cpus
        self.workers = workers
        self._remote = functools.lru_cache(self._as_task)

    def _as_task(self, function: Callable[..., Any]) -> Any:
        return self._ray.remote(num_cpus=self._num_cpus, max_retries=5)(function)

    def put(self, value: Any) -> Any:
        return self._ray.put(value)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._remote(function).remote(*arguments)

    def merge(self, function: Callable[[list[Any]], Any], handles: list[Any]) -> Any:
        return self._remote(_call_with_list).remote(self.put(function), *handles)

    def wait(self, handle: Any) -> None:
        self._ray.wait([handle], fetch_local=False)

    def result(self, handle: Any) -> Any:
        return self._ray.get(handle)


def _call_with_list(function: Callable[[list[Any]], Any], *results: Any) -> Any:
    return function(list(results))


class ThreadEngine:
    """Threads of this process, for work that spends its time in reading files and in compiled code."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool = concurrent.futures.ThreadPoolExecutor(workers, thread_name_prefix="ghost_ray")

    def close(self) -> None:
        """Drop what has not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def put(self, value: Any) -> Any:
        return value

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._pool.submit(function, *arguments)

    def merge(self, function: Callable[[list[Any]], Any], handles: list[Any]) -> Any:
        # A task waits for others only here, for ones begun before it: there is always one that can go on.
        waiting = list(handles)

        def run() -> Any:
            results = [handle.result() for handle in waiting]
            waiting.clear()
            return function(results)

        return self._pool.submit(run)

    def wait(self, handle: Any) -> None:
        self.result(handle)

    def result(self, handle: Any) -> Any:
        try:
            return handle.result()
        except GhostRayError:
            raise
        except Exception as error:
            raise JobFailed(f"a task failed: {type(error).__name__}: {one_line(error)}") from error
