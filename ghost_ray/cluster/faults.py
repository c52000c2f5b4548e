"""What Ray lost, told apart from what code raised."""

from __future__ import annotations


def lost_something(error: BaseException) -> bool:
    """Whether a process, a node or an object went away under the job: tried again, the same work may succeed.

    An actor whose constructor raised is none of these: it will raise again.
    """
    from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError, WorkerCrashedError

    if isinstance(error, RayActorError):
        return not error.actor_init_failed
    return isinstance(error, NodeDiedError | ObjectLostError | WorkerCrashedError)
