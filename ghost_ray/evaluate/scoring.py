"""Scoring: every method on every set once, streamed to Parquet."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.errors import InputError
from ghost_ray.evaluate.batches import BatchReader
from ghost_ray.evaluate.fitting import Fitted, Scorers, answer_for
from ghost_ray.files import join, redact, resolve
from ghost_ray.gaussians import Gaussians, z_sum
from ghost_ray.progress import progress
from ghost_ray.runtime import map_ordered
from ghost_ray.scorers import Batch, ShardedScorer
from ghost_ray.store import Piece

SCHEMA = pa.schema([("key", pa.string()), ("pred", pa.int32()), ("label", pa.int32()), ("score", pa.float64())])


@dataclass(frozen=True)
class SetScores:
    """One set under every method, rows in the store's order."""

    label: np.ndarray  # [N]
    pred: np.ndarray  # [N]
    top_logit: np.ndarray  # [N]
    scores: dict[str, np.ndarray]  # [N] by method
    notes: tuple[str, ...]  # what methods warned of, each once
    z_sum: np.ndarray | None = None  # [N], GHOST's s, NaN where the class has no Gaussian; None without GHOST


def score_set(fitted: Fitted, reader: BatchReader, name: str, methods: list[str], folder: str) -> SetScores:
    """Score a set with every method and write ``<method>__<name>.parquet`` into ``folder``."""
    parts: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        writers = {method: stack.enter_context(_writer(folder, method, name)) for method in methods}
        shown = stack.enter_context(progress(f"score {name}", reader.store.rows, "rows"))
        whole = map_ordered(_score_piece, reader.store.pieces(), fitted.whole, fitted.gaussians, reader)
        for (piece, part), sharded in zip(whole, _score_sharded(fitted, reader), strict=False):
            part["scores"] |= sharded
            key = part.pop("key")
            columns = [key, *(pa.array(part[c].astype(np.int32)) for c in ("pred", "label"))]
            for method, writer in writers.items():
                _refuse_nan(part["scores"][method], method, key, reader)
                writer.write_table(pa.Table.from_arrays([*columns, pa.array(part["scores"][method])], schema=SCHEMA))
            parts.append(part)
            shown.advance(piece.rows)

    scores = {method: np.concatenate([part["scores"][method] for part in parts]) for method in methods}
    notes = tuple(dict.fromkeys(note for part in parts for note in part["notes"]))
    names = ["label", "pred", "top_logit", *([] if fitted.gaussians is None else ["z_sum"])]
    return SetScores(**{c: np.concatenate([part[c] for part in parts]) for c in names}, scores=scores, notes=notes)


def score_file(method: str, name: str) -> str:
    """File name of the scores of one method on one set."""
    return f"{method.replace(':', '-')}__{name}.parquet"


def _writer(folder: str, method: str, name: str) -> pq.ParquetWriter:
    filesystem, path = resolve(join(folder, score_file(method, name)))
    filesystem.create_dir(resolve(folder)[1], recursive=True)
    return pq.ParquetWriter(path, SCHEMA, filesystem=filesystem)


def _score_piece(piece: Piece, scorers: Scorers, gaussians: Gaussians | None, reader: BatchReader) -> dict[str, Any]:
    batch, key = reader.read(piece)
    part: dict[str, Any] = {"key": key, "label": batch.label, "pred": batch.pred, "top_logit": batch.top_logit}
    if gaussians is not None:
        distance = z_sum(batch.embedding, batch.pred, gaussians.mean, gaussians.inverse_std)
        part["z_sum"] = np.where(gaussians.present[batch.pred], distance, np.nan)
    part["scores"] = {}
    # Nobody reads a worker's stderr: what a method warns of goes into the results.
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for name, scorer in scorers.items():
            with answer_for(name):
                part["scores"][name] = scorer.score(batch)
    part["notes"] = [str(warning.message) for warning in warned if warning.category is UserWarning]
    return part


def _score_sharded(fitted: Fitted, reader: BatchReader) -> Iterator[dict[str, np.ndarray]]:
    """For each piece, the scores of the sharded methods: every shard answers in a task of its own."""
    import ray

    if not fitted.sharded:
        yield from itertools.repeat({})
    remote: Any = ray.remote(num_cpus=1, max_retries=5)
    load, ask, gather = remote(_load), remote(_ask_shard), remote(_gather)
    shared = ray.put(reader)
    methods = {name: (ray.put(scorer), shards) for name, (scorer, shards) in fitted.sharded.items()}

    def submit(piece: Piece) -> dict[str, Any]:
        batch = load.remote(piece, shared)
        return {
            name: gather.remote(batch, scorer, *[ask.remote(batch, scorer, shard) for shard in shards])
            for name, (scorer, shards) in methods.items()
        }

    # The next piece is under way while one is being waited for; more would only fill the object store.
    pieces = deque(reader.store.pieces())
    pending: deque[dict[str, Any]] = deque()
    while pieces or pending:
        while pieces and len(pending) < 2:
            pending.append(submit(pieces.popleft()))
        yield {name: ray.get(reference) for name, reference in pending.popleft().items()}


def _load(piece: Piece, reader: BatchReader) -> Batch:
    return reader.read(piece)[0]


def _ask_shard(batch: Batch, scorer: ShardedScorer, shard: Any) -> np.ndarray:
    with answer_for(scorer.name):
        return scorer.score_shard(shard, batch)


def _gather(batch: Batch, scorer: ShardedScorer, *partial: np.ndarray) -> np.ndarray:
    with answer_for(scorer.name):
        return scorer.finish(reduce(scorer.merge_partial, partial), batch)


def _refuse_nan(scores: np.ndarray, method: str, key: pa.Array, reader: BatchReader) -> None:
    missing = np.flatnonzero(np.isnan(scores))
    if len(missing):
        where = f"{len(missing)} rows of {redact(reader.store.uri)}, first {key[int(missing[0])].as_py()!r}"
        raise InputError("--methods", method, f"gave NaN for {where}", f"leave out {method}")
