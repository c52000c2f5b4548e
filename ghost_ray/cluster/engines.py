"""What runs the tasks of a job: a Ray cluster, or the threads of this process."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from threadpoolctl import threadpool_limits

from ghost_ray.cluster.scaling import cluster_cpus
from ghost_ray.config.policies import TASK_CPUS, TASK_RETRIES
from ghost_ray.errors import GhostRayError, JobFailed, one_line

_COUNT_SECONDS = 2.0  # after which the CPUs of a cluster are counted again


class Engine(Protocol):
    """Runs functions elsewhere. A handle represents a future result; handles and ``put`` values may be arguments."""

    @property
    def workers(self) -> int:
        """How many tasks can run at a time; it may change while a job runs."""

    def put(self, value: Any) -> Any:
        """Make a value cheap to hand to many tasks."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Start ``function(*arguments)``; return its handle."""

    def submit_watched(self, function: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
        """As ``submit``; beside the handle, one of a small result, to wait for the end of the task or its error."""

    def merge(self, function: Callable[[list[Any]], Any], handles: list[Any]) -> Any:
        """Start ``function(results)`` on the results of ``handles``, a list that it may empty; return its handle."""

    def result(self, handle: Any) -> Any:
        """Wait for a result, or raise what its task raised."""

    def running(self) -> contextlib.AbstractContextManager[None]:
        """The context in which tasks run."""


def as_task(function: Callable[..., Any], *, num_cpus: float = TASK_CPUS, memory: float = 0) -> Any:
    """The function as a Ray task, with the options that every task of this package has."""
    import ray

    return ray.remote(num_cpus=num_cpus, memory=memory, max_retries=TASK_RETRIES)(function)


class RayEngine:
    """Tasks of the connected Ray; one whose worker dies is run again.

    No task is ever cancelled: a task that ends while it is being cancelled triggers an assertion of Ray 2.60 ("Tried to
    complete task that was not pending"), which kills the driver without a message. A failed job leaves at most one
    window of tasks, which end with it.
    """

    def __init__(self, num_cpus: float, memory: float = 0) -> None:
        self._num_cpus, self._memory = num_cpus, memory
        self._remote = functools.lru_cache(self._as_task)
        self._workers, self._counted = 1, -math.inf

    @property
    def workers(self) -> int:
        """CPUs of the cluster as it is now. Nodes join while tasks wait for them, and then take part."""
        now = time.monotonic()
        if now - self._counted >= _COUNT_SECONDS:
            self._workers, self._counted = cluster_cpus(), now
        return self._workers

    def _as_task(self, function: Callable[..., Any]) -> Any:
        return as_task(function, num_cpus=self._num_cpus, memory=self._memory)

    def put(self, value: Any) -> Any:
        import ray

        return ray.put(value)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._remote(function).remote(*arguments)

    def submit_watched(self, function: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
        # `ray.wait` does not raise, and the result itself should not come to the driver.
        task = self._remote(_call_watched).options(num_returns=2, name=function.__name__)
        handle, end = task.remote(function, *arguments)
        return handle, end

    def merge(self, function: Callable[[list[Any]], Any], handles: list[Any]) -> Any:
        return self._remote(_call_with_list).remote(self.put(function), *handles)

    def result(self, handle: Any) -> Any:
        import ray

        return ray.get(handle)

    def running(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # Ray itself sets the number of threads of the libraries in a worker


def _call_watched(function: Callable[..., Any], *arguments: Any) -> tuple[Any, None]:
    return function(*arguments), None


def _call_with_list(function: Callable[[list[Any]], Any], *results: Any) -> Any:
    return function(list(results))


class _OneCore:
    """Limits the libraries to one thread per task as long as any block of the process needs it.

    The limit belongs to the process. Blocks overlap: generators of results are read inside one another, and jobs run
    beside each other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._limits: threadpool_limits | None = None

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        with self._lock:
            if self._blocks == 0:
                self._limits = threadpool_limits(1)
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if self._blocks == 0 and self._limits is not None:
                    self._limits.restore_original_limits()


_one_core = _OneCore()


class ThreadEngine:
    """Threads of this process, for work that spends its time in reading files and in compiled code."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = concurrent.futures.ThreadPoolExecutor(workers, thread_name_prefix="ghost_ray")
        self._thread = threading.local()

    @property
    def workers(self) -> int:
        return self._workers

    def close(self) -> None:
        """Drop tasks that have not started."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def put(self, value: Any) -> Any:
        return value

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._start(lambda found: function(*found), arguments)

    def submit_watched(self, function: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
        handle = self.submit(function, *arguments)
        return handle, handle

    def merge(self, function: Callable[[list[Any]], Any], handles: list[Any]) -> Any:
        return self._start(function, handles)

    def _start(self, function: Callable[[list[Any]], Any], arguments: Iterable[Any]) -> Any:
        # A task waits only here, and only for tasks that started before it: one of them can always continue.
        waiting = list(arguments)

        def run() -> Any:
            self._keep_to_one_core()
            found = [given.result() if isinstance(given, concurrent.futures.Future) else given for given in waiting]
            waiting.clear()
            return function(found)

        return self._pool.submit(run)

    def result(self, handle: Any) -> Any:
        try:
            return handle.result()
        except GhostRayError:
            raise
        except Exception as error:
            raise JobFailed(f"a task failed: {type(error).__name__}: {one_line(error)}") from error

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """One core per task, as in Ray: with more threads, a matrix product could also round differently."""
        with _one_core.block():
            yield

    def _keep_to_one_core(self) -> None:
        # OpenMP has a limit for each thread, and libraries that use it come with modules imported along the way.
        imported = len(sys.modules)
        if getattr(self._thread, "imported", 0) != imported:
            threadpool_limits(1, user_api="openmp")
            self._thread.imported = imported
