"""Joining or starting Ray, quietly, and leaving it."""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from ghost_ray.cluster.path_check import require_places
from ghost_ray.config import RayJobConfig
from ghost_ray.config.limits import TASK_RETRIES
from ghost_ray.errors import GhostRayError, InputError, JobFailed, one_line

T = TypeVar("T")
_QUIET_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # the first error of a job is reported; those of the tasks beside it are not
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # keep CUDA_VISIBLE_DEVICES as it is where no GPU is reserved
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # the driver's C++ side writes to stderr, between the lines of the progress
}
# A worker takes a second of a core to start; by itself Ray ends those it has no work for after one.
_PATIENT_ENVIRONMENT = {"RAY_idle_worker_killing_time_threshold_ms": "30000"}
# Ray does not tell a cluster that refuses a driver without a token from one that is not there.
_JOINING = (
    "see `ray status`; a cluster with tokens needs RAY_AUTH_MODE=token and the token in ~/.ray/auth_token, "
    "RAY_AUTH_TOKEN or the file that RAY_AUTH_TOKEN_PATH names, one without needs RAY_AUTH_MODE=disabled"
)
_seconds_for_nodes: ContextVar[float] = ContextVar("seconds_for_nodes", default=0.0)


def seconds_for_nodes() -> float:
    """How long the job that runs now waits for nodes to join."""
    return _seconds_for_nodes.get()


@contextlib.contextmanager
def ray_session(config: RayJobConfig) -> Iterator[None]:
    """A connected Ray for the block: the one already joined, the cluster named, or a local one of its own.

    Local places that a node of the cluster does not see are refused before the block begins. What a task raised
    reaches the caller as it was raised; a local Ray is shut down at the end.
    """
    prepare_environment()
    import ray

    mine = not ray.is_initialized()
    leave: Callable[[], None] = ray.shutdown
    others = set(_descendants(os.getpid()))
    rays: list[int] = []
    # Ray tells of the death of a worker on stdout, where programs read the answer.
    waiting = _seconds_for_nodes.set(config.wait_for_nodes)
    with contextlib.redirect_stdout(sys.stderr):
        try:
            if mine:
                _start(config)
                rays = [process for process in _descendants(os.getpid()) if process not in others]
            require_places(config)
            yield
        except ray.exceptions.RayTaskError as error:
            raise _cause(error) from None
        except ray.exceptions.RayError as error:
            raise JobFailed(f"Ray: {one_line(error)} — run the same command again") from None
        except (KeyboardInterrupt, SystemExit):
            if not cluster_address(config):
                leave = partial(_leave_at_once, rays)
            raise
        finally:
            _seconds_for_nodes.reset(waiting)
            if mine:
                leave()


@contextlib.contextmanager
def named_cluster(config: RayJobConfig) -> Iterator[None]:
    """The cluster that is named, for several jobs; where none is, each of them starts what it needs."""
    with ray_session(config) if cluster_address(config) else contextlib.nullcontext():
        yield


def prepare_environment() -> None:
    """Set what Ray reads when it starts; what the user has set stays."""
    for name, value in {**_QUIET_ENVIRONMENT, **_PATIENT_ENVIRONMENT}.items():
        os.environ.setdefault(name, value)


def _leave_at_once(started: Iterable[int]) -> None:
    """Shut a local Ray down within three seconds; by itself it waits politely for its workers.

    Only the processes that Ray ``started`` and those below them are killed: others belong to the user.
    """
    import ray

    # Noted first: a worker whose raylet has ended is nobody's child any more.
    processes = {below for process in started for below in (process, *_descendants(process))}
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


def cluster_address(config: RayJobConfig) -> str | None:
    """The cluster to join; None where a local Ray is started."""
    return config.address or os.environ.get("RAY_ADDRESS")


def ray_is_joined() -> bool:
    """Whether this process is connected to a Ray; none is imported to find out."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def begin_on_this_node(function: Callable[..., T], *arguments: Any) -> Callable[[], T]:
    """Begin ``function(*arguments)`` in a worker of the joined Ray on this machine, which ends with it.

    What is returned waits for the result.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    task = ray.remote(num_cpus=0, max_calls=1, max_retries=TASK_RETRIES)(function)
    begun = task.options(scheduling_strategy=node).remote(*arguments)

    def result() -> T:
        try:
            found: T = ray.get(begun)
            return found
        except ray.exceptions.RayTaskError as error:
            raise _cause(error) from None

    return result


def lost_something(error: BaseException) -> bool:
    """Whether the job lost a process, a node or an object, so that a retry may succeed.

    An actor whose constructor raised does not count: it will raise again.
    """
    from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError, WorkerCrashedError

    if isinstance(error, RayActorError):
        return not error.actor_init_failed
    return isinstance(error, NodeDiedError | ObjectLostError | WorkerCrashedError)


def is_dead_worker(error: BaseException) -> bool:
    """Whether the worker of a task died."""
    from ray.exceptions import WorkerCrashedError

    return isinstance(error, WorkerCrashedError)


def _start(config: RayJobConfig) -> None:
    import ray

    address = cluster_address(config)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        with _no_stderr():
            if address:
                ray.init(address=address, **quiet)
            else:
                ray.init(address="local", num_cpus=config.num_cpus, include_dashboard=False, **quiet)
    except Exception as error:  # Ray raises a bare one where a node takes long to start
        if address:
            raise InputError("address", address, f"cannot be joined: {one_line(error)}", _JOINING) from None
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
    host = re.search(r"\bip=([^\s,)]+)", str(error))
    return JobFailed(f"a task failed{f' on {host[1]}' if host else ''}: {type(cause).__name__}: {one_line(cause)}")
