"""Jobs in separate processes, to be killed: starts them, waits for a moment, and checks that nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

_MARK = "GHOST_RAY_TEST_JOB"


@dataclass(frozen=True)
class Ended:
    """How a job ended."""

    code: int
    output: str
    errors: str

    def result(self) -> dict[str, Any]:
        """The result of a job that succeeded."""
        assert self.code == 0, self.errors
        answer: dict[str, Any] = json.loads(self.output)
        return answer


class Job:
    """``ghost-ray WORDS --json``, running. All it starts has ``variables`` and a mark in its environment."""

    def __init__(self, *words: str, **variables: str) -> None:
        self._mark = secrets.token_hex(8)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ghost_ray", *words, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables, _MARK: self._mark},
        )

    def running(self) -> bool:
        return self.process.poll() is None

    def until(self, condition: Callable[[], Any], every: float = 0.05) -> Any:
        """The first true value of ``condition``, while the job runs."""

        def met() -> Any:
            found = condition()
            assert found or self.running(), f"the job ended before: {self.process.communicate()[1][-2000:]}"
            return found

        return wait_until(met, every=every)

    def wait(self, seconds: float = 300) -> Ended:
        """How it ended; nothing it started may outlive it by more than a moment."""
        try:
            output, errors = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        wait_until(lambda: not self._left(), 60, every=0.2)
        return Ended(self.process.returncode, output, errors)

    def kill(self) -> None:
        """End the driver alone, without a chance to clean up; what it started notices."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        wait_until(lambda: not self._left(), 60, every=0.2)

    def kill_everything(self) -> None:
        """End the driver and all it started at once, as when a machine loses power."""
        kill_marked(_MARK, self._mark)
        self.kill()

    def _left(self) -> list[psutil.Process]:
        return marked(_MARK, self._mark)


def marked(name: str, mark: str) -> list[psutil.Process]:
    """The processes that have this mark in the variable of their environment."""
    return [process for process in psutil.process_iter() if environment(process).get(name) == mark]


def kill_marked(name: str, mark: str) -> None:
    for process in marked(name, mark):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def environment(process: psutil.Process) -> dict[str, str]:
    try:
        return dict(process.environ()) if process.status() != psutil.STATUS_ZOMBIE else {}
    except psutil.Error:
        return {}


def run(*words: str, **variables: str) -> Ended:
    """A job from beginning to end."""
    return Job(*words, **variables).wait()


def wait_until(condition: Callable[[], Any], seconds: float = 120, every: float = 0.05) -> Any:
    """The first true value of ``condition``."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(every)
    return found


def workers(title: str, below: int) -> list[psutil.Process]:
    """Ray's worker processes below a process that are working on what ``title`` names."""
    found = []
    for process in psutil.Process(below).children(recursive=True):
        try:
            if title in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found
