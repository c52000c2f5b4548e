"""A gate that many may pass side by side, or one alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class Gate:
    """Whoever wants to be alone waits for those inside; whoever comes later waits for the one alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._alone = 0  # those who want to be, inside or waiting

    def beside_others(self) -> contextlib.AbstractContextManager[None]:
        """For any number of threads."""
        return self._enter(lambda: not self._alone)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """For one thread at a time, with nobody beside it."""
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
