"""Methods that are fitted: whole ones, and those whose fit lies in shards where the tasks run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from ghost_ray.cluster import current_engine
from ghost_ray.gaussians import Gaussians
from ghost_ray.jobs.evaluate.costs import Clock, array_bytes, fitted_bytes
from ghost_ray.scorers import Scorer, ShardedScorer

Scorers = dict[str, Scorer]
Restored = dict[str, list[Any]]  # methods whose fit was there already, with the contents of their shards


@dataclass(frozen=True)
class Shard:
    """A part of what a method keeps, and the seconds that making it took."""

    content: Any
    seconds: float


@dataclass
class Fitted:
    """Methods ready to score: ``whole`` answer by themselves, ``sharded`` with their shards, handles of the engine."""

    whole: Scorers = field(default_factory=dict)
    sharded: dict[str, tuple[ShardedScorer, list[Any]]] = field(default_factory=dict)
    gaussians: Gaussians | None = None  # GHOST's, where it is among the methods
    clock: Clock = field(default_factory=Clock)

    def scorers(self) -> Scorers:
        """All methods by name."""
        return {**self.whole, **{name: scorer for name, (scorer, _) in self.sharded.items()}}

    def without(self, methods: Collection[str]) -> Fitted:
        """The same but for some methods; GHOST's Gaussians stay."""
        whole = {name: scorer for name, scorer in self.whole.items() if name not in methods}
        sharded = {name: both for name, both in self.sharded.items() if name not in methods}
        return replace(self, whole=whole, sharded=sharded)

    def kept_bytes(self) -> dict[str, int]:
        """What each method keeps of the training rows; asks the shards, and adds the seconds of making them."""
        kept = {name: fitted_bytes(scorer) for name, scorer in self.whole.items()}
        for name, (scorer, _) in self.sharded.items():
            found = self._costs_of_shards(name)
            self.clock.add({name: sum(seconds for seconds, _ in found)})
            kept[name] = fitted_bytes(scorer) + sum(size for _, size in found)
        return kept

    def bytes_in_shards(self, method: str) -> int:
        """Bytes of the arrays in a method's shards."""
        return sum(size for _, size in self._costs_of_shards(method))

    def contents_of_shards(self, method: str) -> list[Any]:
        """A method's shards, brought here."""
        engine = current_engine()
        return [engine.result(engine.submit(_content_of, shard)) for shard in self.sharded[method][1]]

    def _costs_of_shards(self, method: str) -> list[tuple[float, int]]:
        engine = current_engine()
        return [engine.result(engine.submit(_cost_of, shard)) for shard in self.sharded[method][1]]


def _content_of(shard: Shard) -> Any:
    return shard.content


def _cost_of(shard: Shard) -> tuple[float, int]:
    return shard.seconds, array_bytes(shard.content)


def is_bank(scorer: Scorer) -> bool:
    """Whether the shards of a method are the training rows themselves."""
    return isinstance(scorer, ShardedScorer) and not scorer.by_class


def merged_passes(scorer: Scorer) -> int:
    """How many passes end in one merged state; the last pass of a bank fills its shards instead."""
    return scorer.passes - is_bank(scorer)
