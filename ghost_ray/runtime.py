"""Joining or starting Ray, quietly, or doing without; running many tasks without holding all their results."""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from ghost_ray.config import RayJobConfig
from ghost_ray.engines import Engine, RayEngine, ThreadEngine
from ghost_ray.errors import GhostRayError, InputError, JobFailed, one_line

Item = TypeVar("Item")
_MERGE_WIDTH = 8
_threads: ContextVar[ThreadEngine | None] = ContextVar("threads", default=None)

_QUIET_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # the first error of a job is reported; those of the tasks beside it are not
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # keep CUDA_VISIBLE_DEVICES as it is where no GPU is reserved
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # the driver's C++ side writes to stderr, between the lines of the progress
}

# A worker takes a second of a core to start; by itself Ray ends those it has no work for after one.
_PATIENT_ENVIRONMENT = {"RAY_idle_worker_killing_time_threshold_ms": "30000"}


@contextlib.contextmanager
def ray_session(config: RayJobConfig) -> Iterator[None]:
    """A connected Ray for the block: the one already joined, the cluster named, or a local one of its own.

    What a task raised reaches the caller as it was raised; a local Ray is shut down at the end.
    """
    for name, value in {**_QUIET_ENVIRONMENT, **_PATIENT_ENVIRONMENT}.items():
        os.environ.setdefault(name, value)
    import ray

    mine = not ray.is_initialized()
    leave: Callable[[], None] = ray.shutdown
    # Ray tells of the death of a worker on stdout, where programs read the answer.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            if mine:
                _start(config)
            yield
        except ray.exceptions.RayTaskError as error:
            raise _cause(error) from None
        except (ray.exceptions.RayError, ray.exceptions.RayChannelError) as error:
            raise JobFailed(f"Ray: {one_line(error)} — run the same command again") from None
        except (KeyboardInterrupt, SystemExit):
            if not _address(config):
                leave = _leave_at_once
            raise
        finally:
            if mine:
                leave()


def _leave_at_once() -> None:
    """Shut a local Ray down within three seconds; by itself it waits politely for its workers."""
    import ray

    # Noted first: a worker whose raylet has ended is nobody's child any more.
    processes = _descendants(os.getpid())
    leaving = threading.Thread(target=ray.shutdown, daemon=True)
    leaving.start()
    leaving.join(2)
    _kill(processes)
    leaving.join(1)


def kill_descendants() -> None:
    """Kill every process that this one has started, directly or through others."""
    _kill(_descendants(os.getpid()))


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _descendants(process: int) -> list[int]:
    """Process ids below ``process``, as Linux lists them."""
    found: list[int] = []
    for listing in glob.glob(f"/proc/{process}/task/*/children"):
        with contextlib.suppress(OSError), open(listing, encoding="ascii") as handle:
            children = [int(word) for word in handle.read().split()]
            found += [*children, *(below for child in children for below in _descendants(child))]
    return found


def _address(config: RayJobConfig) -> str | None:
    """The cluster to join; None where a local Ray is started."""
    return config.address or os.environ.get("RAY_ADDRESS")


def _start(config: RayJobConfig) -> None:
    import ray

    address = _address(config)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        with _no_stderr():
            if address:
                ray.init(address=address, **quiet)
            else:
                ray.init(address="local", num_cpus=config.num_cpus, include_dashboard=False, **quiet)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        if address:
            raise InputError(
                "--address", address, f"no Ray cluster answers: {one_line(error)}", "see `ray status`"
            ) from None
        raise JobFailed(f"a local Ray could not be started: {one_line(error)}") from None
    if threading.current_thread() is threading.main_thread():
        # Ray installs a handler that prints a stack trace; a job that is stopped should just unwind.
        signal.signal(signal.SIGTERM, on_terminate)
    logging.getLogger("ray.data").setLevel(logging.ERROR)


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Drop what C++ code writes to stderr, such as the announcement that its log level was set; errors are raised."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _cause(error: Any) -> BaseException:
    """The exception a task raised, without Ray's wrapping where it is one of ours."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, GhostRayError):
        return cause
    return JobFailed(f"a task failed: {type(cause).__name__}: {one_line(cause)}")


def cluster_cpus() -> int:
    """CPUs of the connected cluster, at least 1."""
    import ray

    return max(1, int(ray.cluster_resources().get("CPU", 1)))


@contextlib.contextmanager
def workers(config: RayJobConfig) -> Iterator[None]:
    """Something to run tasks for the block: a Ray that is joined or named, else threads of this process.

    A local Ray takes longer to start and to stop than a job that only reads a store takes for ten gigabytes.
    """
    if _address(config) or _ray_is_joined():
        with ray_session(config):
            yield
        return
    engine = ThreadEngine(config.num_cpus or os.cpu_count() or 1)
    token = _threads.set(engine)
    try:
        yield
    finally:
        _threads.reset(token)
        engine.close()


def _ray_is_joined() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _engine(num_cpus: float = 1) -> Engine:
    return _threads.get() or RayEngine(num_cpus, cluster_cpus())


def map_ordered(
    function: Callable[..., Any], items: Iterable[Item], *shared: Any, num_cpus: float = 1
) -> Generator[tuple[Item, Any], None, None]:
    """Run ``function(item, *shared)`` as a task for each item; yield (item, result) in the items' order.

    Only a window of tasks is under way, so neither the driver nor the object store holds all the results.
    ``shared`` arguments are put into the object store once. Tasks whose worker dies are run again by Ray.
    """
    engine = _engine(num_cpus)
    references = [engine.put(value) for value in shared]
    window = 2 * engine.workers + 2
    pending: deque[tuple[Item, Any]] = deque()
    for item in items:
        pending.append((item, engine.submit(function, item, *references)))
        if len(pending) >= window:
            done, handle = pending.popleft()
            yield done, engine.result(handle)
    while pending:
        done, handle = pending.popleft()
        yield done, engine.result(handle)


def map_merge(
    function: Callable[..., Any],
    items: Iterable[Item],
    merge: Callable[[list[Any]], Any],
    *shared: Any,
    done: Callable[[Item], None] = lambda item: None,
) -> Any:
    """Run ``function(item, *shared)`` for each item and merge the results in a tree, all in tasks.

    ``merge(results)``, which may empty its list as it goes, always sees the same neighbours in the same order, so the
    outcome depends on the items and not on how many workers there are or which of them is first. Results are merged
    as they come: about one window of them exists at a time. ``done`` is told of each item in order.
    """
    engine = _engine()
    references = [engine.put(value) for value in shared]
    window = 2 * engine.workers + 2
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
        item, handle = pending.popleft()
        engine.wait(handle)
        done(item)

    for item in items:
        handle = engine.submit(function, item, *references)
        pending.append((item, handle))
        add(handle)
        del handle
        if len(pending) >= window:
            settle()
    while pending:
        settle()
    rest: list[Any] = []
    for level in range(len(levels)):
        rest = [*levels[level], *([engine.merge(merge, rest)] if rest else [])]
        levels[level] = []
    last = engine.merge(merge, rest)
    rest.clear()
    return engine.result(last)
