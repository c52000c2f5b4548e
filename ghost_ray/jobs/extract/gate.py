"""A lock that many threads share, or one holds exclusively."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class Gate:
    """An exclusive thread waits for those inside; later threads wait for the exclusive one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._alone = 0  # those who want to be, inside or waiting

    def beside_others(self) -> contextlib.AbstractContextManager[None]:
        """For any number of threads."""
        return self._enter(lambda: not self._alone)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Exclusive, for one thread at a time."""
        with self._changed:
            self._alone += 1
        try:
            with self._enter(lambda: not self._inside):
                yield
        finally:
            with self._changed:
                self._alone -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def _enter(self, free: Callable[[], bool]) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(free)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()
