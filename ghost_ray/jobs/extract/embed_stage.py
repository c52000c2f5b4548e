"""Cropped images → rows of the store, in the actors; each has a separate process that holds the network.

Nothing here imports torch, so only that process can die of it. If it dies on a block, the block is computed again in
pieces, one at a time, until the image that kills it is found and recorded as a failure; an image that does not kill it
twice is fine. If the process dies on every input, the device or the network is broken: then the actor holds its blocks,
so that it does not drain the queue, until the other actors have finished, and returns them for another round.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ghost_ray.config.policies import NETWORK_LOSSES, REQUEST_PAUSES, Stage
from ghost_ray.errors import GhostRayError, JobFailed
from ghost_ray.jobs.extract.gate import Gate
from ghost_ray.jobs.extract.losses import Verdict
from ghost_ray.jobs.extract.network_client import Hiccup, Lost, RunningNetwork, Template
from ghost_ray.jobs.extract.network_process import Embedded, Task
from ghost_ray.jobs.extract.tally import Reporter
from ghost_ray.jobs.extract.write_stage import block_schema, constant_column
from ghost_ray.store import to_table

CALLS = 3  # blocks in flight per actor: one is computed, one waits in the process, one is being sent to the actor
_PIECES = 8  # pieces that a failing block is split into, again and again down to one image
_POLL_SECONDS = 1.0


class Embed:
    """Prepared pictures → rows of the store. One instance per actor, called by several threads.

    A ``template`` that is running already saves the time to start one.
    """

    def __init__(self, task: Task, dimensions: int, reporter: Reporter, template: Template | None = None) -> None:
        self._task, self._dimensions, self._reporter = task, dimensions, reporter
        self._gate = Gate()
        self._template = template
        self._network: RunningNetwork | None = None
        self._in_a_row, self._cause = 0, ""  # processes lost without a picture computed in between, and why the last
        self._refusal: GhostRayError | None = None
        reporter.joined()
        # Ray would restart an actor whose constructor raises, without success: so the first block reports the error.
        try:
            self._start()
        except GhostRayError as error:
            self._refusal = error
        except Lost as error:
            self._lose(error)

    def close(self) -> None:
        """End the network's process."""
        if self._network is not None:
            self._network.close()
            self._network = None

    def __call__(self, block: pa.Table) -> pa.Table:
        if self._refusal is not None:
            raise self._refusal
        sound = np.flatnonzero(np.asarray(block["stage"].is_null()))
        pictures = _pictures(block, self._task.preprocessing.shape)
        try:
            found = self._compute(pictures if len(sound) == len(pictures) else pictures[sound])
        except Lost as error:
            self._wait_for_the_others(block, str(error))
            return block_schema(self._dimensions).empty_table()
        return _rows(block, sound, found, self._dimensions)

    def _compute(self, pictures: np.ndarray) -> list[_Found]:
        """The result of each image; Lost if nothing can be computed here."""
        if not len(pictures):
            return []
        with self._gate.beside_others():
            network = self._network
            if network is not None:
                try:
                    return [_Found(slice(0, len(pictures)), network.run(pictures))]
                except Lost as error:
                    cause = error
        with self._gate.alone():
            if network is not None and network is self._network:  # of several blocks that it took, the first counts it
                self._lose(cause)
            return list(self._in_pieces(pictures))

    def _in_pieces(self, pictures: np.ndarray) -> Iterator[_Found]:
        """The same, one piece at a time; a piece that kills the process is split, a single image is recorded."""
        pieces = deque(_cut(slice(0, len(pictures))))
        while pieces:
            piece = pieces.popleft()
            if self._network is None:
                self._start_again()
            try:
                assert self._network is not None
                embedded = self._network.run(pictures[piece])
            except Lost as error:
                self._lose(error)
                # The other pieces come first: one that succeeds shows that the device works.
                if piece.stop - piece.start > 1:
                    pieces += _cut(piece)
                else:
                    yield _Found(piece, str(error))
            else:
                self._in_a_row = 0
                yield _Found(piece, embedded)

    def _start(self) -> None:
        for pause in (*REQUEST_PAUSES, None):
            try:
                if self._template is None or not self._template.alive:
                    self._template = Template()
                self._network = RunningNetwork(self._template, self._task, CALLS)
                return
            except Hiccup as error:
                if pause is None:
                    raise error.error from None
                time.sleep(pause)

    def _start_again(self) -> None:
        """Start another process; Lost if too many have died in a row."""
        while self._network is None:
            if self._in_a_row >= NETWORK_LOSSES:
                raise Lost(self._cause)
            try:
                self._start()
            except Lost as error:
                self._lose(error)

    def _lose(self, error: Lost) -> None:
        self.close()
        self._in_a_row += 1
        self._cause = str(error)
        self._reporter.lost(self._cause)

    def _wait_for_the_others(self, block: pa.Table, cause: str) -> None:
        """Hold a block that cannot be computed here until nothing else is left to do; JobFailed if no actor can."""
        while (verdict := self._reporter.stuck(block)) is Verdict.WAIT:
            time.sleep(_POLL_SECONDS)
        if verdict is Verdict.STOP:
            raise JobFailed(f"no device computes the embeddings: {cause} — finished work is kept")


@dataclass(frozen=True)
class _Found:
    """The result of a piece of a block: rows, or the reason why there are none."""

    piece: slice
    result: Embedded | str


def _cut(piece: slice) -> list[slice]:
    """Split a piece into at most eight of nearly equal size."""
    count = min(_PIECES, piece.stop - piece.start)
    ends = [piece.start + (piece.stop - piece.start) * part // count for part in range(count + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(ends)]


def _pictures(block: pa.Table, shape: tuple[int, ...]) -> np.ndarray:
    """The block's pictures as an array, without copying where the block is in one piece."""
    flat: np.ndarray = block["pixels"].combine_chunks().flatten().to_numpy(zero_copy_only=True)
    return flat.reshape(block.num_rows, *shape)


def _rows(block: pa.Table, sound: np.ndarray, found: list[_Found], dimensions: int) -> pa.Table:
    rows = block.num_rows
    stages, errors = block["stage"].to_pylist(), block["error"].to_pylist()
    embedding, prediction = np.zeros((rows, dimensions), np.float32), np.zeros(rows, np.int32)
    seconds, batch_size = 0.0, 0

    def failed(at: np.ndarray, error: str) -> None:
        for row in at:
            stages[row], errors[row] = Stage.EMBED, error

    for each in found:
        at, result = sound[each.piece], each.result
        if isinstance(result, str):
            failed(at, result)
            continue
        good = result.finite
        embedding[at] = result.embedding if good.all() else np.where(good[:, None], result.embedding, 0)
        prediction[at] = np.where(good, result.prediction, 0)
        failed(at[~good], "the embedding or its logits are not finite")
        seconds += result.seconds
        batch_size = max(batch_size, result.batch_size)
    table = to_table(block["key"].combine_chunks(), block["label"].to_numpy(), prediction, embedding)
    for name, column in {
        "portion": block["portion"],
        "place": block["place"],
        "failed": pa.array([stage is not None for stage in stages]),
        "stage": pa.array(stages, pa.string()),
        "error": pa.array(errors, pa.string()),
        "batch_size": pa.array(np.full(rows, batch_size, np.int32)),
        "read_seconds": block["read_seconds"],
        "decode_seconds": block["decode_seconds"],
        "embed_seconds": constant_column(seconds / max(1, rows), rows),
    }.items():
        table = table.append_column(name, column)
    return table
