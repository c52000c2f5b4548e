"""Running many tasks, on Ray or in threads of this process, without holding all their results."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, TypeVarTuple

from threadpoolctl import threadpool_limits

from ghost_ray.cluster.nodes import cluster_cpus, wait_for_room
from ghost_ray.cluster.ray_interfaces import alive_nodes
from ghost_ray.cluster.session import cluster_address, ray_is_joined, ray_session, seconds_for_nodes
from ghost_ray.config import RayJobConfig
from ghost_ray.config.limits import TASK_CPUS, TASK_RETRIES
from ghost_ray.errors import GhostRayError, JobFailed, one_line

# ---- what runs the tasks

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


# ---- running them

Item = TypeVar("Item")
Found = TypeVar("Found")
Shared = TypeVarTuple("Shared")
_MERGE_WIDTH = 8
_threads: ContextVar[ThreadEngine | None] = ContextVar("threads", default=None)


@contextlib.contextmanager
def workers(config: RayJobConfig) -> Iterator[None]:
    """Something to run tasks for the block: a Ray that is joined or named, else threads of this process.

    A local Ray takes longer to start and to stop than a job that only reads a store takes for ten gigabytes. Within
    ``threads``, threads are always used.
    """
    if _threads.get() is not None:
        yield
        return
    if cluster_address(config) or ray_is_joined():
        with ray_session(config):
            yield
        return
    with threads(config.num_cpus):
        yield


@contextlib.contextmanager
def threads(count: int | None = None) -> Iterator[None]:
    """Run the tasks of the block in threads of this process, by default one per CPU, whatever Ray there is."""
    engine = ThreadEngine(count or os.cpu_count() or 1)
    token = _threads.set(engine)
    try:
        yield
    finally:
        _threads.reset(token)
        engine.close()


def current_engine(num_cpus: float = TASK_CPUS, memory: float = 0) -> Engine:
    """What runs tasks here: the threads of an enclosing block, else the connected Ray, reserving this for each task."""
    if (engine := _threads.get()) is not None:
        return engine
    working = [node for node in alive_nodes() if node["CPU"]]
    if not working:  # a head that only plans, and no worker yet
        working = wait_for_room("tasks", "a task with 1 CPU", {"CPU": max(1.0, num_cpus)}, 1, seconds_for_nodes())
    # A task that reserves more than any node has would wait for ever.
    most = max((node["memory"] for node in working if node["CPU"]), default=0)
    return RayEngine(num_cpus, min(memory, most))


def _window(engine: Engine) -> int:
    """Tasks submitted at a time. More than can run, so that an autoscaler adds nodes for the rest."""
    return 2 * engine.workers + 2


def map_ordered(
    function: Callable[[Item, *Shared], Found],
    items: Iterable[Item],
    *shared: *Shared,
    num_cpus: float = TASK_CPUS,
    memory: float = 0,
) -> Generator[tuple[Item, Found], None, None]:
    """Run ``function(item, *shared)`` as a task for each item; yield (item, result) in the items' order.

    Only a window of tasks is submitted at a time, so neither the driver nor the object store holds all the results.
    ``shared`` arguments are put into the object store once. Tasks whose worker dies are run again by Ray.
    """
    engine = current_engine(num_cpus, memory)
    references = [engine.put(value) for value in shared]
    pending: deque[tuple[Item, Any]] = deque()
    with engine.running():
        for item in items:
            pending.append((item, engine.submit(function, item, *references)))
            while len(pending) >= _window(engine):
                done, handle = pending.popleft()
                yield done, engine.result(handle)
        while pending:
            done, handle = pending.popleft()
            yield done, engine.result(handle)


def map_merge(
    function: Callable[[Item, *Shared], Found],
    items: Iterable[Item],
    merge: Callable[[list[Found]], Found],
    *shared: *Shared,
    done: Callable[[Item], None] = lambda item: None,
) -> Found:
    """Run ``function(item, *shared)`` for each item and merge the results in a tree, all in tasks.

    ``merge(results)``, which may empty its list as it goes, always sees the same neighbours in the same order, so the
    result does not depend on the number of workers or on which finishes first. Results are merged as they arrive: about
    one window of them exists at a time. ``done`` is called for each item in order; what its task raised is raised then.
    """
    engine = current_engine()
    references = [engine.put(value) for value in shared]
    pending: deque[tuple[Item, Any]] = deque()
    levels: list[list[Any]] = [[]]

    def add(handle: Any) -> None:
        level = 0
        while True:
            levels[level].append(handle)
            if len(levels[level]) < _MERGE_WIDTH:
                return
            handle = engine.merge(merge, levels[level])
            levels[level] = []
            level += 1
            if level == len(levels):
                levels.append([])

    def settle() -> None:
        item, end = pending.popleft()
        engine.result(end)
        done(item)

    with engine.running():
        for item in items:
            handle, end = engine.submit_watched(function, item, *references)
            pending.append((item, end))
            add(handle)
            del handle, end
            while len(pending) >= _window(engine):
                settle()
        while pending:
            settle()
        rest: list[Any] = []
        for level in range(len(levels)):
            rest = [*levels[level], *([engine.merge(merge, rest)] if rest else [])]
            levels[level] = []
        last = engine.merge(merge, rest)
        rest.clear()
        found: Found = engine.result(last)
    return found
