"""Distinguishes losses in Ray from exceptions of code, and ends what waits for something lost."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class Stalled(Exception):
    """Nothing moves, and a node was lost."""


@contextlib.contextmanager
def can_be_ended() -> Iterator[Callable[[str], None]]:
    """Gives a function with which another thread ends the block, which may wait inside Ray: it raises `Stalled`.

    A signal does this, as Ctrl-C does; outside of the main thread, where there are no signals, nothing happens.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main:
        yield lambda why: None
        return
    reasons: list[str] = []

    def stop(_: int, __: FrameType | None) -> None:
        if reasons:
            raise Stalled(reasons.pop())

    def end(why: str) -> None:
        reasons.append(why)
        signal.pthread_kill(main.ident or 0, signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, stop)
    try:
        yield end
    finally:
        reasons.clear()
        signal.signal(signal.SIGUSR2, before)


def lost_something(error: BaseException) -> bool:
    """Whether the job lost a process, a node or an object, so that a retry may succeed.

    An actor whose constructor raised does not count: it will raise again.
    """
    if isinstance(error, Stalled):
        return True
    from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError, WorkerCrashedError

    if isinstance(error, RayActorError):
        return not error.actor_init_failed
    return isinstance(error, NodeDiedError | ObjectLostError | WorkerCrashedError)
