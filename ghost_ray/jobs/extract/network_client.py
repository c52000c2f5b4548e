"""The actor's side of the network process: starts it, sends it blocks, and detects its death."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from multiprocessing.connection import Connection

import numpy as np

from ghost_ray.errors import GhostRayError
from ghost_ray.jobs.extract.network_process import NUMBER, Answer, Done, Embedded, Failed, Order, Ready, Refused, Task

_COMMAND = "from ghost_ray.jobs.extract.network_process import main; main()"
_GONE = "the process that networks are forked from is gone"


class Lost(Exception):
    """The process died or can no longer be trusted; its current work must be computed again."""


class Hiccup(Exception):
    """A hub or a store did not answer while the network was loaded; ``error`` is for the user."""

    def __init__(self, error: GhostRayError) -> None:
        super().__init__(str(error))
        self.error = error


class Template:
    """The process whose forks hold networks; it has imported what they need. One at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the command, which ends this process
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._socket = ours

    def fork(self, files: list[int]) -> int:
        """A new process that has these open files; Lost if the template itself is gone."""
        try:
            socket.send_fds(self._socket, [b"."], files)
            return self._answer()
        except OSError:
            self.close()
            raise Lost(_GONE) from None

    def ended(self) -> int:
        """Wait until the previous process has ended; returns its exit code, negative for a signal."""
        return self._answer()

    def _answer(self) -> int:
        told = self._socket.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(told) < NUMBER.size:
            raise ConnectionError("the template is gone")
        number: int = NUMBER.unpack(told)[0]
        return number

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


_kept: dict[tuple[tuple[str, ...], str], Template] = {}  # at most one, by what it was started with


def kept_template() -> Template:
    """A template for all networks that this process has one after the other; it ends with this process."""
    key = (tuple(sys.path), os.getcwd())
    template = _kept.get(key)
    if template is None or not template.alive:
        end_kept_template()
        template = _kept[key] = Template()
    return template


@atexit.register
def end_kept_template() -> None:
    """End it, where there is one."""
    while _kept:
        _kept.popitem()[1].close()


class RunningNetwork:
    """A network in a separate process. :meth:`run` may be called by several threads at a time.

    Parameters
    ----------
    template : Template
        What it is forked from.
    task : Task
        What it is to run.
    slots : int
        Blocks in flight: one is computed, the others wait.

    Raises
    ------
    GhostRayError
        If the network cannot be loaded.
    Hiccup
        If loading may succeed soon.
    Lost
        If the process died while starting.
    """

    def __init__(self, template: Template, task: Task, slots: int) -> None:
        self._template = template
        self._files = [os.memfd_create(f"pictures-{slot}") for slot in range(slots)]
        ours, theirs = socket.socketpair()
        try:
            self._process = template.fork([theirs.fileno(), *self._files])
        except Lost:
            self._close_files()
            raise
        finally:
            theirs.close()
        self._connection = Connection(ours.detach())
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(slots):
            self._free.put(slot)
        self._sending = threading.Lock()
        self._waiting: dict[int, Future[Embedded]] = {}
        self._cause: str | None = None  # why it is lost
        self._ending = threading.Lock()
        self._ended: str | None = None  # how, in words
        try:
            self._connection.send((task, dict(os.environ)))
            first: Answer = self._connection.recv()
        except (EOFError, OSError):
            first = Failed(self._death())
        if not isinstance(first, Ready):
            self.close()
            raise _as_exception(first)
        threading.Thread(target=self._receive, daemon=True).start()

    def run(self, pixels: np.ndarray) -> Embedded:
        """Compute pictures [n, ...]; Lost if the process does not survive it."""
        slot = self._free.get()
        try:
            _write(self._files[slot], pixels)
            future: Future[Embedded] = Future()
            with self._sending:
                if self._cause is not None:
                    raise Lost(self._cause)
                self._waiting[slot] = future
                with contextlib.suppress(OSError):  # it has just died: the receiving thread will report it
                    self._connection.send(Order(slot, len(pixels)))
            return future.result()
        finally:
            self._free.put(slot)

    def _receive(self) -> None:
        last: Answer = Failed("")
        try:
            while isinstance(last := self._connection.recv(), Done):
                self._waiting.pop(last.slot).set_result(last.embedded)
        except (EOFError, OSError):
            last = Failed(self._death())
        error = _as_exception(last)
        with self._sending:
            self._cause = str(error)
        for future in self._waiting.values():
            future.set_exception(error)

    def _death(self) -> str:
        """How the process ended, in words; waits until it has."""
        with self._ending:
            if self._ended is None:
                self._ended = _in_words(self._template)
            return self._ended

    def close(self) -> None:
        """End the process and give back what it held."""
        if self._ended is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
        self._death()
        self._close_files()

    def _close_files(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []


def _in_words(template: Template) -> str:
    try:
        code = template.ended()
    except OSError:
        return _GONE
    if code >= 0:
        return f"the network's process ended with exit code {code}"
    hint = ", as when memory runs out" if code == -signal.SIGKILL else ""
    return f"the network's process ended with {signal.Signals(-code).name}{hint}"


def _as_exception(answer: Answer) -> Exception:
    if isinstance(answer, Refused):
        return Hiccup(answer.error) if answer.passing else answer.error
    return Lost(answer.cause if isinstance(answer, Failed) else "it answered out of turn")


def _write(file: int, pixels: np.ndarray) -> None:
    """Put pictures at the beginning of a slot."""
    rest = np.ascontiguousarray(pixels).data.cast("B")
    at = 0
    while at < len(rest):
        at += os.pwrite(file, rest[at:], at)
