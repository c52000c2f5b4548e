"""One holder at a time of a named lock below a registry's root; `ghost_ray.files.claims` says what holding means."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator

from ghost_ray.errors import redact
from ghost_ray.files import is_local, join
from ghost_ray.files.claims import Busy, Claim, Holder, claim_on, describe, this_process

__all__ = ["Busy", "Holder", "Lock", "describe", "hold", "holder"]

_FOLDER = ".locks"
Lock = Claim


@contextlib.contextmanager
def hold(root: str, name: str, *, wait: float = 0.0, job: str = "") -> Iterator[Lock]:
    """Hold the lock ``name`` of ``root`` for the block.

    Parameters
    ----------
    wait : float
        Seconds to wait before raising :class:`Busy`.
    job : str
        What others see of the holder, beside host, process and time.
    """
    lock, about = _lock(root, name), this_process(job)
    deadline = time.monotonic() + wait
    while not lock.take(about):
        if time.monotonic() >= deadline:
            raise Busy(
                f"another {name} works on {redact(root)} now ({describe(holder(root, name))}); run it again later"
            )
        time.sleep(random.uniform(0.1, 0.6))
    try:
        yield lock
    finally:
        lock.release()


def holder(root: str, name: str) -> Holder | None:
    """What is known about the holder of a lock, or None if it is free."""
    return _lock(root, name).holder()


def _lock(root: str, name: str) -> Lock:
    return claim_on(join(root, _FOLDER, name if is_local(root) else f"{name}.json"), root, "registry")
