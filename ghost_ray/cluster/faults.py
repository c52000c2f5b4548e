"""Distinguishes losses in Ray from exceptions of code."""

from __future__ import annotations


def lost_something(error: BaseException) -> bool:
    """Whether the job lost a process, a node or an object, so that a retry may succeed.

    An actor whose constructor raised does not count: it will raise again.
    """
    from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError, WorkerCrashedError

    if isinstance(error, RayActorError):
        return not error.actor_init_failed
    return isinstance(error, NodeDiedError | ObjectLostError | WorkerCrashedError)
