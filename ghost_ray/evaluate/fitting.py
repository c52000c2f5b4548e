"""Fitting every method in a stream over the training store.

The methods share each reading of the rows. A task accumulates the states of all methods over one piece of the store;
they are merged in a tree over the pieces, so that a result does not depend on the number of workers. What needs
all rows of a class gets them from the class ranges of a clustered store. What is too large for one process, a bank of
all training rows or a covariance for every class, stays in Ray's object store, a shard a piece.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ghost_ray.arrange import clustered
from ghost_ray.errors import InputError, one_line
from ghost_ray.evaluate.batches import BatchReader
from ghost_ray.gaussians import Gaussians
from ghost_ray.progress import Progress, progress
from ghost_ray.runtime import map_merge, map_ordered
from ghost_ray.scorers import Kept, Scorer, ShardedScorer, State
from ghost_ray.scorers.ghost import Ghost
from ghost_ray.store import Piece

Scorers = dict[str, Scorer]


@dataclass
class Fitted:
    """Methods ready to score: ``whole`` answer by themselves, ``sharded`` with their shards, Ray references."""

    whole: Scorers = field(default_factory=dict)
    sharded: dict[str, tuple[ShardedScorer, list[Any]]] = field(default_factory=dict)

    @property
    def gaussians(self) -> Gaussians | None:
        """GHOST's Gaussians, where it is among the methods."""
        ghost = self.whole.get(Ghost.name)
        return ghost.gaussians_ if isinstance(ghost, Ghost) else None


def fit_all(scorers: Scorers, reader: BatchReader, scratch: str) -> Fitted:
    """Fit every method on the rows of a store.

    Parameters
    ----------
    scorers : dict of name to Scorer
        Bound to the store's network; fitted in place.
    scratch : str
        A folder for intermediate files, which the caller removes.
    """
    readings = max((_merged_passes(scorer) for scorer in scorers.values()), default=0)
    by_class = {name: scorer for name, scorer in scorers.items() if scorer.by_class}
    whole_by_class = {name: scorer for name, scorer in by_class.items() if not isinstance(scorer, ShardedScorer)}
    fitted = Fitted()
    with progress("fit", reader.store.rows * (readings + bool(whole_by_class)), "rows") as shown:
        for pass_index in range(readings):
            _run_pass(scorers, pass_index, reader, shown)
        by_label = BatchReader(clustered(reader.store, scratch), reader.head, reader.field) if by_class else reader
        if whole_by_class:
            _run_classes(whole_by_class, by_label, shown)
    for name, scorer in scorers.items():
        if isinstance(scorer, ShardedScorer):
            fitted.sharded[name] = (scorer, _make_shards(scorer, by_label if scorer.by_class else reader))
        else:
            fitted.whole[name] = scorer
    return fitted


def _merged_passes(scorer: Scorer) -> int:
    """How many passes end in one merged state; the last pass of a bank fills its shards instead."""
    is_bank = isinstance(scorer, ShardedScorer) and not scorer.by_class
    return scorer.passes - is_bank


def _run_pass(scorers: Scorers, pass_index: int, reader: BatchReader, shown: Progress) -> None:
    taking_part = {name: scorer for name, scorer in scorers.items() if _merged_passes(scorer) > pass_index}
    merged = map_merge(
        _accumulate,
        reader.store.pieces(),
        _merge_states,
        taking_part,
        pass_index,
        reader,
        done=lambda piece: shown.advance(piece.rows),
    )
    for name, scorer in taking_part.items():
        with answer_for(name):
            scorer.end_pass(pass_index, merged.pop(name))


def _accumulate(piece: Piece, scorers: Scorers, pass_index: int, reader: BatchReader) -> dict[str, State]:
    batch, _ = reader.read(piece, with_logits=any(scorer.fits_on_logits for scorer in scorers.values()))
    states = {}
    for name, scorer in scorers.items():
        with answer_for(name):
            states[name] = scorer.begin(pass_index)
            states[name].update(batch)
    return states


def _merge_states(states: list[dict[str, State]]) -> dict[str, State]:
    first, *others = states
    for other in others:
        for name, state in other.items():
            first[name].merge(state)
    return first


def _run_classes(scorers: Scorers, reader: BatchReader, shown: Progress) -> None:
    fits: dict[str, dict[int, Any]] = {name: {} for name in scorers}
    for pieces, found in map_ordered(_fit_range, reader.store.class_ranges(), scorers, reader):
        for name, of_class in found.items():
            fits[name].update(of_class)
        shown.advance(sum(piece.rows for piece in pieces))
    for name, scorer in scorers.items():
        with answer_for(name):
            scorer.end_classes(fits.pop(name))


def _fit_range(pieces: list[Piece], scorers: Scorers, reader: BatchReader) -> dict[str, dict[int, Any]]:
    """Fits of the classes whose rows lie in ``pieces``, by method and class."""
    kept: dict[str, list[Kept]] = {name: [] for name in scorers}
    for piece in pieces:
        batch, _ = reader.read(piece, with_logits=any(scorer.fits_on_logits for scorer in scorers.values()))
        for name, scorer in scorers.items():
            kept[name].append(scorer.keep_usable(batch))
    fits = {}
    for name, scorer in scorers.items():
        rows = Kept.join(kept.pop(name))
        with answer_for(name):
            fits[name] = {k: scorer.fit_class(k, rows.of_class(k)) for k in sorted(set(rows.label.tolist()))}
    return fits


def _make_shards(scorer: ShardedScorer, reader: BatchReader) -> list[Any]:
    import ray

    # Tasks of the driver rather than objects of a worker: lost with a node, Ray makes them again.
    task: Any = ray.remote(num_cpus=1, max_retries=5)(_class_shard if scorer.by_class else _bank_shard)
    shared = [ray.put(scorer), ray.put(reader)]
    parts: list[Any] = reader.store.class_ranges() if scorer.by_class else reader.store.pieces()
    shards = [task.remote(part, *shared) for part in parts]
    if scorer.by_class:
        # The classes alone: enough for the method to say which are missing.
        classes_in: Any = ray.remote(num_cpus=1, max_retries=5)(_classes_in)
        scorer.shards_ = ray.get([classes_in.remote(shard) for shard in shards])
    return shards


def _classes_in(shard: dict[int, Any]) -> list[int]:
    return list(shard)


def _bank_shard(piece: Piece, scorer: Any, reader: BatchReader) -> Any:
    batch, _ = reader.read(piece, with_logits=scorer.fits_on_logits)
    with answer_for(scorer.name):
        state = scorer.begin(scorer.passes - 1)
        state.update(batch)
        return scorer.shard(state)


def _class_shard(pieces: list[Piece], scorer: ShardedScorer, reader: BatchReader) -> Any:
    fits = _fit_range(pieces, {scorer.name: scorer}, reader)[scorer.name]
    return {k: fit for k, fit in fits.items() if fit is not None}


@contextlib.contextmanager
def answer_for(method: str) -> Iterator[None]:
    """Turn what a method says of its input into an answer to the user."""
    try:
        yield
    except ValueError as error:
        hint = f"leave out {method}, or use another --fit store"
        raise InputError("--methods", method, one_line(error), hint) from None
