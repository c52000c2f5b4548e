"""Which processes of a run use the CPU time, while all of them are busy."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from types import TracebackType

import psutil

_EVERY = 0.5  # seconds


class CpuWatch:
    """Samples the CPU seconds of this process and all its descendants until the block ends."""

    def __init__(self) -> None:
        self._looks: list[tuple[float, defaultdict[str, float]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> CpuWatch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def between(self, start: float, end: float) -> dict[str, float]:
        """CPU seconds of each kind of process between two moments, from the nearest samples."""
        looks = [look for look in self._looks if start <= look[0] <= end]
        if len(looks) < 2:
            return {}
        first, last = looks[0][1], looks[-1][1]
        share = (end - start) / (looks[-1][0] - looks[0][0])
        return {kind: (last[kind] - first[kind]) * share for kind in sorted(last)}

    def _look(self) -> None:
        # The time of a process that has ended still counts.
        seen: dict[psutil.Process, tuple[str, float]] = {}
        while not self._stop.wait(_EVERY):
            for process in _family():
                with contextlib.suppress(psutil.Error):
                    spent = process.cpu_times()
                    seen[process] = _kind(process), spent.user + spent.system
            total: defaultdict[str, float] = defaultdict(float)
            for kind, seconds in seen.values():
                total[kind] += seconds
            self._looks.append((time.time(), total))


def _family() -> Iterator[psutil.Process]:
    me = psutil.Process()
    yield me
    yield from me.children(recursive=True)


def _kind(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    if process == psutil.Process():
        return "driver"
    if "network_process" in words:
        return "networks"
    if words.startswith("ray::MapWorker"):
        return "actors"
    return "workers" if words.startswith("ray::") else "ray itself"
