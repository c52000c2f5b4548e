"""Which actors have lost their device, and what happens to the blocks they hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

_GRACE_SECONDS = 60.0  # for actors that are still starting, when all that have started are stuck


class Verdict(StrEnum):
    """What an actor does with a block that it cannot compute."""

    WAIT = "wait"  # others are working on the rest
    RELEASE = "release"  # the rest is finished; another round computes it elsewhere
    STOP = "stop"  # too many actors cannot, or none can


@dataclass(frozen=True)
class Device:
    """Where an actor computes."""

    node: str  # Ray's id
    gpus: tuple[str, ...]  # their numbers on that node; none for a CPU


@dataclass
class Losses:
    """Kept by the tally for one round.

    Parameters
    ----------
    total : int, optional
        Images of the round; None until all of them are listed.
    spare : int
        Actors that may be without a device before the job ends.
    """

    total: int | None
    spare: int
    broken: dict[str, Device] = field(default_factory=dict)  # by actor
    _joined: set[str] = field(default_factory=set)
    _held: dict[str, int] = field(default_factory=dict)  # images by block
    _last: float = 0.0

    def joined(self, actor: str) -> None:
        """An actor has started and wants blocks."""
        self._joined.add(actor)

    def stuck(self, actor: str, device: Device, block: str, images: int, done: int, now: float) -> Verdict:
        """Decide about a block of an actor that has lost its device; it asks again while the answer is to wait."""
        if actor not in self.broken:
            self.broken[actor], self._last = device, now
        self._held[block] = images
        if len(self.broken) > self.spare:
            return Verdict.STOP
        if self.total is not None and done + sum(self._held.values()) >= self.total:
            return Verdict.RELEASE
        nobody_else = self._joined <= self.broken.keys() and now - self._last > _GRACE_SECONDS
        return Verdict.STOP if nobody_else else Verdict.WAIT
