"""What the workers report while the job runs: images done, failures, seconds in each stage."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ghost_ray.config.policies import LOST_NODE_PATIENCE, TIMED_STAGES, Stage
from ghost_ray.errors import GateFailed
from ghost_ray.jobs.extract.losses import Device, Losses, Verdict
from ghost_ray.jobs.extract.write_stage import BLOCK_STAGES
from ghost_ray.progress import Progress, progress, say
from ghost_ray.sources import Failure

_POLL_SECONDS = 1.0
_SILENCE_SECONDS = 45.0
_HOPELESS = 100  # with fewer failures, the job never stops early


@dataclass
class Counts:
    """Sums over the blocks reported."""

    images: int = 0
    failures: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TIMED_STAGES, 0.0))
    examples: list[tuple[str, str, str]] = field(default_factory=list)  # key, stage, error of the first failures
    processes: int = 0  # that held a network and were lost
    cause: str = ""  # of the first such loss
    broken: list[Device] = field(default_factory=list)  # devices that were given up
    portions: int = 0  # that were listed to their end


class Tally:
    """Adds up; ``limit`` failures are too many, and ``portions`` are to be listed."""

    def __init__(self, limit: float, losses: Losses, portions: int) -> None:
        self._limit, self._counts, self._blocks, self._losses = limit, Counts(), set[str](), losses
        self._portions, self._listed = portions, dict[int, int]()
        self._begun: Counter[str] = Counter()  # how often, of the blocks that are not done

    def begin(self, block: str) -> int:
        """Count a start of decoding a block; returns how often it has been started."""
        self._begun[block] += 1
        return self._begun[block]

    def add(self, block: str, images: int, failed: list[tuple[str, str, str, int]], seconds: dict[str, float]) -> bool:
        """Count a block; False once there are hopelessly many failures. One computed again is counted once."""
        if block not in self._blocks:
            self._blocks.add(block)
            self._begun.pop(block, None)
            self._count(images, failed, seconds)
        return not hopeless(self._counts.failures, self._limit)

    def _count(self, images: int, failed: list[tuple[str, str, str, int]], seconds: dict[str, float]) -> None:
        counts = self._counts
        counts.images += images
        counts.failures += sum(lost for *_, lost in failed)
        counts.examples += [(key, stage, error) for key, stage, error, _ in failed[: 3 - len(counts.examples)]]
        for stage, value in seconds.items():
            counts.seconds[stage] += value

    def listed(self, portion: int, images: int, lost: list[tuple[str, str, str, int]]) -> None:
        """So many images of a portion are to be done in this round; ``lost`` are damaged parts with their images."""
        if portion not in self._listed:
            self._count(sum(part[3] for part in lost), lost, {})
        self._listed[portion] = images
        self._counts.portions = len(self._listed)
        if len(self._listed) == self._portions:
            self._losses.total = sum(self._listed.values())

    def joined(self, actor: str) -> None:
        """An embedding actor has started."""
        self._losses.joined(actor)

    def lost(self, cause: str) -> None:
        """A process that held a network died."""
        self._counts.processes += 1
        self._counts.cause = self._counts.cause or cause

    def stuck(self, actor: str, device: Device, block: str, images: int) -> Verdict:
        """What becomes of a block whose actor has lost its device."""
        return self._losses.stuck(actor, device, block, images, self._counts.images, time.monotonic())

    def counts(self) -> Counts:
        return replace(self._counts, broken=list(self._losses.broken.values()))


def hopeless(failures: int, limit: float) -> bool:
    """Whether so many images failed that finishing is pointless, even to list them all."""
    return failures > max(_HOPELESS, 2 * limit)


class Reporter:
    """A worker's end of a tally in this process."""

    def __init__(self, tally: Any) -> None:
        self._tally = tally

    def begin(self, block: pa.Table) -> int:
        """Report that a block is being decoded; returns how often that was begun."""
        times: int = self._ask("begin", block["key"][0].as_py()) or 1
        return times

    def report(self, block: pa.Table, write_seconds: float) -> None:
        """Report a written block; GateFailed if continuing is pointless."""
        failed = block.filter(block["failed"]).select(["key", "stage", "error"])
        rows = [(row["key"], row["stage"], row["error"], 1) for row in failed.to_pylist()]
        seconds = {stage: pc.sum(block[f"{stage}_seconds"]).as_py() or 0.0 for stage in BLOCK_STAGES}
        seconds[Stage.WRITE] = write_seconds
        if self._ask("add", block["key"][0].as_py(), block.num_rows, rows, seconds) is False:
            raise GateFailed("too many images fail")

    def listed(self, portion: int, images: int, lost: Sequence[Failure]) -> None:
        """Report how many images of a portion are to be done, and what of it could not be listed."""
        rows = [(failure.key, failure.stage, failure.error, failure.images) for failure in lost]
        self._tell("listed", portion, images, rows)

    def joined(self) -> None:
        """Report an embedding actor that has started."""
        self._tell("joined", self._actor)

    def lost(self, cause: str) -> None:
        """Report the death of a process that held a network."""
        self._tell("lost", cause)

    def stuck(self, block: pa.Table) -> Verdict:
        """Ask what becomes of a block that this actor cannot compute."""
        asked = self._ask("stuck", self._actor, self._device, block["key"][0].as_py(), block.num_rows)
        return Verdict.RELEASE if asked is None else Verdict(asked)

    def _tell(self, what: str, *news: Any) -> None:
        getattr(self._tally, what)(*news)

    def _ask(self, what: str, *news: Any) -> Any:
        """The answer; None if the tally is gone."""
        return getattr(self._tally, what)(*news)

    @property
    def _actor(self) -> str:
        return "here"

    @property
    def _device(self) -> Device:
        return Device("here", ())


@contextlib.contextmanager
def tallying_here(limit: float, total: int | None, portions: int) -> Iterator[tuple[Reporter, Callable[[], Counts]]]:
    """Add up in this process and show the counts until the block ends; gives the reporter and a way to ask for them.

    Parameters
    ----------
    limit : float
        Failures that are not yet too many.
    total : int or None
        Images, where their number is known; else the progress says how many of the ``portions`` are listed.
    """
    tally = Tally(limit, Losses(None, spare=0), portions)
    with showing(tally.counts, total, portions):
        yield Reporter(tally), tally.counts


class Watch:
    """What the driver looks at beside the counts, where there are other nodes."""

    def lost(self) -> list[str]:
        """The nodes that were lost since the last call."""
        return []

    def written(self) -> int | None:
        """Images in the files of this round; None if nobody counts them."""
        return None

    def stalled(self, why: str) -> None:
        """No image was finished for a long time after a node was lost."""


@contextlib.contextmanager
def showing(
    counts: Callable[[], Counts], total: int | None, portions: int, watch: Watch | None = None
) -> Iterator[None]:
    """Show the progress until the block ends."""
    stop = threading.Event()
    with progress("extract", total, "images") as shown:
        of = portions if total is None else None
        here = contextvars.copy_context()  # in which the job may be quiet; a thread does not inherit it
        told = (_show, counts, shown, stop, of, watch or Watch())
        thread = threading.Thread(target=here.run, args=told, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(timeout=15)


def _show(
    counts: Callable[[], Counts], shown: Progress, stop: threading.Event, portions: int | None, watch: Watch
) -> None:
    done, base, raw = 0, 0, 0
    moved, silent, lost = time.monotonic(), False, list[str]()
    while True:
        last = stop.wait(_POLL_SECONDS)
        now = counts()
        notes = [] if portions is None else [f"{now.portions:,} of {portions:,} parts listed"]
        notes += [f"{now.failures:,} failed"] if now.failures else []
        notes += [f"{now.processes:,} processes lost"] if now.processes else []
        if notes:
            shown.note(", ".join(notes))
        if now.images < raw or last:  # a tally that was lost with its node begins again at 0; the files know better
            written = watch.written()
            base = base if written is None else max(0, written - now.images)
        raw = now.images
        if base + raw > done:
            moved, silent, lost = time.monotonic(), False, []
            shown.advance(base + raw - done)
            done = base + raw
        if last:
            return
        for node in watch.lost():
            say(f"extract: node {node} is lost; what it held is computed elsewhere")
            silent = False
            lost.append(node)
        waited = time.monotonic() - moved
        if waited >= _SILENCE_SECONDS and not silent:
            silent = True
            for_what = f"what node {', '.join(lost)} had is waited for" if lost else "`ray status` shows what waits"
            say(f"extract: no image was finished for {waited:.0f} s; {for_what}")
        if lost and waited >= LOST_NODE_PATIENCE:
            watch.stalled(f"no image was finished for {waited:.0f} s after node {', '.join(lost)} was lost")
            moved, silent, lost = time.monotonic(), False, []
