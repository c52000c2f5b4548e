"""Fitting every method in a stream over the training store.

The methods share each reading of the rows. A task accumulates the states of all methods over some row groups; these
are merged in a tree, so that a result does not depend on the number of workers. What needs all rows of a class gets
them from the class ranges of a clustered store. What is too large for one process, a bank of all training rows or a
covariance for every class, stays where the tasks run, a shard per task.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ghost_ray.cluster import current_engine, map_merge, map_ordered
from ghost_ray.cluster.sort import clustered
from ghost_ray.errors import GhostRayError, InputError, one_line
from ghost_ray.jobs.evaluate.batches import BatchReader
from ghost_ray.jobs.evaluate.costs import Clock, Seconds
from ghost_ray.jobs.evaluate.fitted_methods import Fitted, Restored, Scorers, Shard, is_bank, merged_passes
from ghost_ray.progress import Progress, progress
from ghost_ray.scorers import Kept, ShardedScorer, State
from ghost_ray.scorers.ghost import Ghost
from ghost_ray.store import RowGroups


@dataclass(frozen=True)
class Part:
    """What a task accumulated: a state for each method, and the seconds each took."""

    states: dict[str, State]
    clock: Clock


def fit_all(scorers: Scorers, reader: BatchReader, scratch: str, restored: Restored | None = None) -> Fitted:
    """Fit every method on the rows of a store.

    Parameters
    ----------
    scorers : dict of name to Scorer
        Bound to the store's network; fitted in place.
    scratch : str
        A folder for intermediate files, which the caller removes.
    restored : dict of name to shards, optional
        Methods that are fitted already. A bank among them gets its rows.
    """
    restored = restored or {}
    left = {name: scorer for name, scorer in scorers.items() if name not in restored}
    readings = max((merged_passes(scorer) for scorer in left.values()), default=0)
    by_class = {name: scorer for name, scorer in left.items() if scorer.by_class}
    whole_by_class = {name: scorer for name, scorer in by_class.items() if not isinstance(scorer, ShardedScorer)}
    fitted = Fitted()
    with progress("fit", reader.store.rows * (readings + bool(whole_by_class)), "rows") as shown:
        for pass_index in range(readings):
            _run_pass(left, pass_index, reader, shown, fitted.clock)
        by_label = BatchReader(clustered(reader.store, scratch), reader.head, reader.field) if by_class else reader
        if whole_by_class:
            _run_classes(whole_by_class, by_label, shown, fitted.clock)
    for name, scorer in scorers.items():
        if not isinstance(scorer, ShardedScorer):
            fitted.whole[name] = scorer
        elif name in restored and not is_bank(scorer):
            fitted.sharded[name] = (scorer, [current_engine().put(Shard(content, 0.0)) for content in restored[name]])
        else:
            fitted.sharded[name] = (scorer, _make_shards(scorer, by_label if scorer.by_class else reader))
    ghost = scorers.get(Ghost.name)
    fitted.gaussians = ghost.gaussians_ if isinstance(ghost, Ghost) else None
    return fitted


def _run_pass(scorers: Scorers, pass_index: int, reader: BatchReader, shown: Progress, clock: Clock) -> None:
    taking_part = {name: scorer for name, scorer in scorers.items() if merged_passes(scorer) > pass_index}
    merged = map_merge(
        _accumulate,
        reader.store.row_groups(),
        _merge_parts,
        taking_part,
        pass_index,
        reader,
        done=lambda groups: shown.advance(groups.rows),
    )
    clock.add(merged.clock.seconds)
    for name, scorer in taking_part.items():
        with answer_for(name), clock.running(name):
            scorer.end_pass(pass_index, merged.states.pop(name))


def _accumulate(groups: RowGroups, scorers: Scorers, pass_index: int, reader: BatchReader) -> Part:
    batch, _ = reader.read(groups, with_logits=any(scorer.fits_on_logits for scorer in scorers.values()))
    part = Part({}, Clock())
    for name, scorer in scorers.items():
        with answer_for(name), part.clock.running(name):
            part.states[name] = scorer.begin(pass_index)
            part.states[name].update(batch)
    return part


def _merge_parts(parts: list[Part]) -> Part:
    first, *others = parts
    for other in others:
        for name, state in other.states.items():
            with answer_for(name), first.clock.running(name):
                first.states[name].merge(state)
        first.clock.add(other.clock.seconds)
    return first


def _run_classes(scorers: Scorers, reader: BatchReader, shown: Progress, clock: Clock) -> None:
    fits: dict[str, dict[int, Any]] = {name: {} for name in scorers}
    for class_range, (found, seconds) in map_ordered(_fit_range, reader.store.class_ranges(), scorers, reader):
        clock.add(seconds)
        for name, of_class in found.items():
            fits[name].update(of_class)
        shown.advance(sum(groups.rows for groups in class_range))
    for name, scorer in scorers.items():
        with answer_for(name), clock.running(name):
            scorer.end_classes(fits.pop(name))


def _fit_range(
    class_range: list[RowGroups], scorers: Scorers, reader: BatchReader
) -> tuple[dict[str, dict[int, Any]], Seconds]:
    """Fits of the classes whose rows lie in ``class_range``, by method and class, and the seconds of each method."""
    clock = Clock()
    kept: dict[str, list[Kept]] = {name: [] for name in scorers}
    for groups in class_range:
        batch, _ = reader.read(groups, with_logits=any(scorer.fits_on_logits for scorer in scorers.values()))
        for name, scorer in scorers.items():
            with answer_for(name):
                kept[name].append(scorer.keep_usable(batch))
    fits = {}
    for name, scorer in scorers.items():
        with answer_for(name), clock.running(name):
            rows = Kept.join(kept.pop(name))
            fits[name] = {k: scorer.fit_class(k, rows.of_class(k)) for k in sorted(set(rows.label.tolist()))}
    return fits, clock.seconds


def _make_shards(scorer: ShardedScorer, reader: BatchReader) -> list[Any]:
    engine = current_engine()
    # Tasks of the driver rather than objects of a worker: lost with a node, Ray makes them again.
    task: Callable[..., Any] = _class_shard if scorer.by_class else _bank_shard
    shared = [engine.put(scorer), engine.put(reader)]
    parts: list[Any] = reader.store.class_ranges() if scorer.by_class else reader.store.row_groups()
    with engine.running():
        shards = [engine.submit(task, part, *shared) for part in parts]
        if scorer.by_class:
            # The classes alone: enough for the method to say which are missing.
            found = [engine.submit(_classes_in, shard) for shard in shards]
            scorer.shards_ = [engine.result(classes) for classes in found]
    return shards


def _classes_in(shard: Shard) -> list[int]:
    return list(shard.content)


def _bank_shard(groups: RowGroups, scorer: Any, reader: BatchReader) -> Shard:
    batch, _ = reader.read(groups, with_logits=scorer.fits_on_logits)
    clock = Clock()
    with answer_for(scorer.name), clock.running(scorer.name):
        state = scorer.begin(scorer.passes - 1)
        state.update(batch)
        content = scorer.shard(state)
    return Shard(content, clock.seconds[scorer.name])


def _class_shard(class_range: list[RowGroups], scorer: ShardedScorer, reader: BatchReader) -> Shard:
    fits, seconds = _fit_range(class_range, {scorer.name: scorer}, reader)
    content = {k: fit for k, fit in fits[scorer.name].items() if fit is not None}
    return Shard(content, seconds[scorer.name])


@contextlib.contextmanager
def answer_for(method: str) -> Iterator[None]:
    """Turn what a method says of its input, or how its author's code fails, into an answer to the user."""
    try:
        yield
    except (GhostRayError, MemoryError, OSError):  # no method is to blame for these
        raise
    except Exception as error:
        *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
        if isinstance(error, ValueError) and innermost.f_globals.get("__name__", "").startswith("ghost_ray."):
            hint = f"leave out {method}, or use another `fit` store"
            raise InputError("methods", method, one_line(error), hint) from None
        frames = traceback.extract_tb(error.__traceback__)
        # Whoever wrote the method looks for a line of it, not for one inside numpy.
        at = next((frame for frame in reversed(frames) if "site-packages" not in frame.filename), frames[-1])
        problem = f"{type(error).__name__} in {os.path.basename(at.filename)}, line {at.lineno}: {one_line(error)}"
        answer = InputError("methods", method, problem, f"correct its code, or leave out {method}")
        answer.add_note("".join(traceback.format_exception(error)))
        raise answer from None
