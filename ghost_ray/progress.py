"""Progress a person can read: a bar on a terminal, plain lines with count, rate and ETA everywhere else."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Protocol

_LINE_EVERY_SECONDS = 10.0
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


class Progress(Protocol):
    """How a job reports its progress."""

    def advance(self, amount: int = 1) -> None:
        """So much more is done."""

    def note(self, text: str) -> None:
        """A word beside the count, such as the number of failures."""


class _Nothing:
    """Reports nothing."""

    def advance(self, amount: int = 1) -> None:
        pass

    def note(self, text: str) -> None:
        pass


class _Lines:
    """Plain lines for logs: one when something moves, at most every ten seconds, and one at the end."""

    def __init__(self, title: str, total: int | None, unit: str) -> None:
        self._title, self._total, self._unit = title, total, unit
        self._start = self._last = time.monotonic()
        self._done, self._note = 0, ""

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        if time.monotonic() - self._last >= _LINE_EVERY_SECONDS:
            self._print()

    def note(self, text: str) -> None:
        self._note = text

    def finish(self, ending: str) -> None:
        self._print(ending)

    def _print(self, ending: str = "") -> None:
        self._last = time.monotonic()
        say(line(self._title, self._done, self._total, self._unit, self._last - self._start, self._note, ending))


def line(title: str, done: int, total: int | None, unit: str, elapsed: float, note: str = "", ending: str = "") -> str:
    """One log line: ``fit: 3,000/10,000 rows (30 %), 1,500 rows/s, ETA 0:05``; the last has an ``ending`` instead."""
    rate = done / elapsed if elapsed > 0 else 0.0
    text = f"{title}: {done:,}"
    if total is not None and done > total:
        total = None  # it was an estimate, and a wrong one
    if total is not None:
        share = 100 * done // total if total else 100
        text += f"/{total:,} {unit} ({share} %)"
    else:
        text += f" {unit}"
    text += f", {rate:,.1f} {unit}/s" if rate < 100 else f", {rate:,.0f} {unit}/s"
    if ending:
        text += f", {ending} {clock(elapsed)}"
    elif total is not None and rate > 0:
        text += f", ETA {clock((total - done) / rate)}"
    return text + (f", {note}" if note else "")


def clock(seconds: float) -> str:
    """Seconds as ``m:ss`` or ``h:mm:ss``."""
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Bar:
    def __init__(self, title: str, total: int | None, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._unit, self._start = unit, time.monotonic()
        self._bar = RichProgress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("·"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(title, total=total, rate="", note="")
        self._total, self._done = total, 0
        self._bar.start()

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        rate = self._done / max(time.monotonic() - self._start, 1e-9)
        total = None if self._total is None else max(self._total, self._done)  # which may be an estimate
        self._bar.update(self._task, advance=amount, total=total, rate=f"{rate:,.0f} {self._unit}/s")

    def note(self, text: str) -> None:
        self._bar.update(self._task, note=text)

    def finish(self, ending: str) -> None:
        self._bar.stop()


@contextlib.contextmanager
def progress(title: str, total: int | None, unit: str) -> Iterator[Progress]:
    """Show how far a job is, on stderr; a bar on a terminal, lines elsewhere."""
    if _quiet.get():
        yield _Nothing()
        return
    shown = _Bar(title, total, unit) if sys.stderr.isatty() else _Lines(title, total, unit)
    ending = "stopped after"
    try:
        yield shown
        ending = "done in"
    finally:
        shown.finish(ending)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Say nothing about progress in the block."""
    before = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(before)


def say(text: str) -> None:
    """One plain line on stderr, beside the progress."""
    if not _quiet.get():
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - this is the place that speaks
