"""Running many tasks, on Ray or in threads, without holding all their results."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar, TypeVarTuple

from ghost_ray.cluster.engines import Engine, RayEngine, ThreadEngine
from ghost_ray.cluster.ray_interfaces import alive_nodes
from ghost_ray.cluster.scaling import NoRoom, wait_for_places
from ghost_ray.cluster.session import cluster_address, ray_is_joined, ray_session
from ghost_ray.config import RayJobConfig
from ghost_ray.config.policies import TASK_CPUS
from ghost_ray.errors import InputError

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
        try:
            working = wait_for_places("tasks", "a task with 1 CPU", {"CPU": max(1.0, num_cpus)}, 1, 1)
        except NoRoom as error:
            raise InputError("address", os.environ.get("RAY_ADDRESS", ""), str(error), "see `ray status`") from None
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
