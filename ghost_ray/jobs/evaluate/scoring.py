"""Scoring: every method on every set once, streamed to Parquet."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.cluster import current_engine, map_ordered
from ghost_ray.errors import InputError, collected_warnings, redact
from ghost_ray.files import join, resolve
from ghost_ray.gaussians import Gaussians, ghost_score
from ghost_ray.jobs.evaluate.batches import BatchReader
from ghost_ray.jobs.evaluate.costs import Clock, Seconds
from ghost_ray.jobs.evaluate.fitted_methods import Fitted, Scorers, Shard
from ghost_ray.jobs.evaluate.fitting import answer_for
from ghost_ray.progress import progress
from ghost_ray.rows import Rows
from ghost_ray.scorers import Scorer, ShardedScorer
from ghost_ray.scorers.ghost import Ghost
from ghost_ray.store import RowGroups

SCHEMA = pa.schema([("key", pa.string()), ("pred", pa.int32()), ("label", pa.int32()), ("score", pa.float64())])


@dataclass(frozen=True)
class Scored:
    """A set under one method: its scores, and what the method warned of."""

    scores: np.ndarray  # [N]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SetScores:
    """One set under every method, rows in the store's order."""

    label: np.ndarray  # [N]
    pred: np.ndarray  # [N]
    top_logit: np.ndarray  # [N]
    scores: dict[str, np.ndarray]  # [N] by method
    notes: dict[str, tuple[str, ...]]  # what each method warned of, each once
    z_sum: np.ndarray | None = None  # [N], GHOST's s, NaN where the class has no Gaussian; None without GHOST
    seconds: Seconds = field(default_factory=dict)  # of each method

    @property
    def negative_top_logits(self) -> int:
        """Rows whose top logit is below zero: there γ grows with the distance from the Gaussian."""
        return int(np.count_nonzero(self.top_logit < 0))


@dataclass(frozen=True)
class PartScores:
    """Some rows under every method; fields as in `SetScores`."""

    key: pa.Array
    label: np.ndarray
    pred: np.ndarray
    top_logit: np.ndarray
    scores: dict[str, np.ndarray]
    notes: dict[str, list[str]]
    z_sum: np.ndarray | None
    seconds: Seconds


def score_set(
    fitted: Fitted,
    reader: BatchReader,
    name: str,
    methods: list[str],
    folder: str,
    done: Mapping[str, Scored] | None = None,
) -> SetScores:
    """Score a set with every method and write ``<method>__<name>.parquet`` into ``folder``.

    ``done`` are methods that scored the set before, and whose files are there.
    """
    done = done or {}
    parts: list[PartScores] = []
    scores: dict[str, list[np.ndarray]] = {method: [] for method in methods if method not in done}
    with contextlib.ExitStack() as stack:
        writers = {method: stack.enter_context(_writer(folder, method, name)) for method in scores}
        shown = stack.enter_context(progress(f"score {name}", reader.store.rows, "rows"))
        for part in _scored(fitted.without(done), reader):
            columns = [part.key, pa.array(part.pred, pa.int32()), pa.array(part.label, pa.int32())]
            for method, writer in writers.items():
                found = part.scores[method]
                _refuse_nan(found, method, part.key, reader)
                writer.write_table(pa.Table.from_arrays([*columns, pa.array(found)], schema=SCHEMA))
                scores[method].append(found)
            parts.append(replace(part, key=None, scores={}))
            shown.advance(len(part.label))

    clock = Clock()
    for part in parts:
        clock.add(part.seconds)
    notes = {method: [note for part in parts for note in part.notes.get(method, ())] for method in scores}
    scored_before = {method: scored.scores for method, scored in done.items()}
    distances = [part.z_sum for part in parts if part.z_sum is not None]
    return SetScores(
        label=np.concatenate([part.label for part in parts]),
        pred=np.concatenate([part.pred for part in parts]),
        top_logit=np.concatenate([part.top_logit for part in parts]),
        scores={method: np.concatenate(values) for method, values in scores.items()} | scored_before,
        notes={m: done[m].notes if m in done else tuple(dict.fromkeys(notes[m])) for m in methods},
        z_sum=np.concatenate(distances) if distances else None,
        seconds=clock.seconds,
    )


def score_file(method: str, name: str) -> str:
    """File name of the scores of one method on one set; no two pairs share one."""
    return f"{_without_separator(file_name(method))}__{_without_separator(file_name(name))}.parquet"


def _without_separator(name: str) -> str:
    """A name in which ``__`` does not occur, nor at its ends the half of one."""
    return re.sub(r"_(?=_)|^_|_$", "%5F", name.replace("%", "%25"))


def file_name(method: str) -> str:
    """A method in the name of a file. A result from elsewhere may name any; the name never leads out of a folder."""
    return re.sub(r"[^\w.=,+-]", "-", method)


def _writer(folder: str, method: str, name: str) -> pq.ParquetWriter:
    filesystem, path = resolve(join(folder, score_file(method, name)))
    filesystem.create_dir(resolve(folder)[1], recursive=True)
    return pq.ParquetWriter(path, SCHEMA, filesystem=filesystem)


def _scored(fitted: Fitted, reader: BatchReader) -> Iterator[PartScores]:
    """The scores of the row groups in order. They are read once for all methods."""
    if fitted.sharded:
        yield from _scored_with_shards(fitted, reader)
        return
    for _, part in map_ordered(_score_groups, reader.store.row_groups(), fitted.whole, fitted.gaussians, reader):
        yield part


def _score_groups(groups: RowGroups, scorers: Scorers, gaussians: Gaussians | None, reader: BatchReader) -> PartScores:
    return _score_rows(reader.read(groups), scorers, gaussians)


def _score_rows(read: tuple[Rows, pa.Array], scorers: Scorers, gaussians: Gaussians | None) -> PartScores:
    batch, key = read
    # GHOST and its variants are fitted on the same rows, so they share one reading of the distances.
    ghost = z_sum = None
    clock = Clock()
    if gaussians is not None:
        with clock.running(Ghost.name):
            ghost = ghost_score(batch, gaussians)
        z_sum = np.where(gaussians.present[batch.pred], ghost.s, np.nan)
    scores, notes = {}, {}
    for name, scorer in scorers.items():
        # Nobody reads a worker's stderr: what a method warns of goes into the results.
        with collected_warnings() as warned, answer_for(name), clock.running(name):
            if ghost is not None and gaussians is not None and _follows_from_gamma(scorer, gaussians):
                scores[name] = scorer.score_of_gamma(ghost.gamma, batch)
            else:
                scores[name] = scorer.score(batch)
        notes[name] = [str(warning) for warning in warned if type(warning) is UserWarning]
    return PartScores(key, batch.label, batch.pred, batch.top_logit(), scores, notes, z_sum, clock.seconds)


def _follows_from_gamma(scorer: Scorer, gaussians: Gaussians) -> TypeGuard[Ghost]:
    """Whether a method scores by γ under these Gaussians; somebody's subclass may fit or score in its own way."""
    kind = type(scorer)
    if not isinstance(scorer, Ghost) or kind.score is not Ghost.score or kind.score_finite is not Ghost.score_finite:
        return False
    parts = ("mean", "std", "count")
    return all(np.array_equal(getattr(scorer.gaussians_, part), getattr(gaussians, part)) for part in parts)


def _scored_with_shards(fitted: Fitted, reader: BatchReader) -> Iterator[PartScores]:
    """The scores of the row groups where some methods are in shards: every shard answers in a task of its own."""
    engine = current_engine()
    shared, whole, gaussians = engine.put(reader), engine.put(fitted.whole), engine.put(fitted.gaussians)
    methods = {name: (engine.put(scorer), shards) for name, (scorer, shards) in fitted.sharded.items()}

    def submit(groups: RowGroups) -> tuple[Any, dict[str, Any]]:
        read = engine.submit(_load, groups, shared)
        answers = {
            name: engine.submit(_gather, read, scorer, *[engine.submit(_ask_shard, read, scorer, s) for s in shards])
            for name, (scorer, shards) in methods.items()
        }
        return engine.submit(_score_rows, read, whole, gaussians), answers

    # The next task is under way while one is being waited for; more than the workers need would only take memory.
    window = 2 + engine.workers // sum(len(shards) for _, shards in methods.values())
    left = deque(reader.store.row_groups())
    pending: deque[tuple[Any, dict[str, Any]]] = deque()
    with engine.running():
        while left or pending:
            while left and len(pending) < window:
                pending.append(submit(left.popleft()))
            handle, answers = pending.popleft()
            part: PartScores = engine.result(handle)
            sharded = {name: engine.result(answer) for name, answer in answers.items()}
            scores = {name: found for name, (found, _) in sharded.items()}
            seconds = {name: spent for name, (_, spent) in sharded.items()}
            yield replace(part, scores=part.scores | scores, seconds=part.seconds | seconds)


def _load(groups: RowGroups, reader: BatchReader) -> tuple[Rows, pa.Array]:
    return reader.read(groups)


Answer = tuple[np.ndarray, float]  # and the seconds it took


def _ask_shard(read: tuple[Rows, pa.Array], scorer: ShardedScorer, shard: Shard) -> Answer:
    clock = Clock()
    with answer_for(scorer.name), clock.running(scorer.name):
        found = scorer.score_shard(shard.content, read[0])
    return found, clock.seconds[scorer.name]


def _gather(read: tuple[Rows, pa.Array], scorer: ShardedScorer, *partial: Answer) -> Answer:
    clock = Clock({scorer.name: sum(seconds for _, seconds in partial)})
    with answer_for(scorer.name), clock.running(scorer.name):
        found = scorer.finish(reduce(scorer.merge_partial, [part for part, _ in partial]), read[0])
    return found, clock.seconds[scorer.name]


def _refuse_nan(scores: np.ndarray, method: str, key: pa.Array, reader: BatchReader) -> None:
    missing = np.flatnonzero(np.isnan(scores))
    if len(missing):
        where = f"{len(missing)} rows of {redact(reader.store.uri)}, first {key[int(missing[0])].as_py()!r}"
        raise InputError("methods", method, f"gave NaN for {where}", f"leave out {method}")
