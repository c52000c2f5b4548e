"""Scores of the known set from earlier evaluations of the same stores, reused when other unknowns are evaluated."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.files import join, read_bytes, read_sealed, write_bytes, write_sealed
from ghost_ray.files.digests import Digest, digest_of, require_same
from ghost_ray.jobs.evaluate.evaluate_plan import KNOWN
from ghost_ray.jobs.evaluate.kept_fits import UNUSABLE
from ghost_ray.jobs.evaluate.scoring import SCHEMA, Scored, score_file
from ghost_ray.store import Store


@dataclass(frozen=True)
class KnownScores:
    """A record of each method's scores of one known set: their file, its digest, and the method's warnings.

    Parameters
    ----------
    record : str
        A sealed JSON file.
    evaluations : str
        The folder that the evaluations are in.
    made_from : str
        Digest of the known set and of what the methods were fitted on.
    rows : int
        Of the known set.
    """

    record: str
    evaluations: str
    made_from: str
    rows: int

    @classmethod
    def of(cls, record: str, evaluations: str, fits_made_from: str, known: Store) -> KnownScores:
        """The record for a known set and methods that were fitted on ``fits_made_from``."""
        both = hashlib.sha256(f"{fits_made_from} {known.fingerprint()}".encode()).hexdigest()
        return cls(record, evaluations, both, known.rows)

    def take(self, methods: Iterable[str], into: str) -> dict[str, Scored]:
        """Copy the score files of these methods into a folder; methods without an undamaged file are left out."""
        found: dict[str, Scored] = {}
        entries = self._entries()
        for method in methods:
            if method in entries:
                with contextlib.suppress(*UNUSABLE, pa.ArrowException):
                    found[method] = self._take(method, entries[method], into)
        return found

    def _take(self, method: str, entry: dict[str, Any], into: str) -> Scored:
        written = Digest.model_validate(entry["file"])
        data = read_bytes(self._place(entry["evaluation"], method), limit=written.size)
        require_same(data, written)
        table = pq.read_table(pa.BufferReader(data), columns=["score"], schema=SCHEMA)
        if table.num_rows != self.rows:
            raise ValueError(f"has {table.num_rows} rows, the known set {self.rows}")
        scored = Scored(table["score"].to_numpy(), tuple(str(note) for note in entry["notes"]))
        write_bytes(join(into, score_file(method, KNOWN)), data)
        return scored

    def add(self, evaluation: str, folder: str, notes: Mapping[str, tuple[str, ...]]) -> None:
        """Record the scores that an evaluation computed itself, in ``folder`` for now, and the ``notes`` by method."""
        new = {
            method: {
                "evaluation": evaluation,
                "file": digest_of(join(folder, score_file(method, KNOWN))).model_dump(),
                "notes": list(said),
            }
            for method, said in notes.items()
        }
        if new:
            write_sealed(self.record, {"made_from": self.made_from, "methods": {**self._entries(), **new}})

    def _entries(self) -> dict[str, Any]:
        """What is recorded for the same stores, by method."""
        with contextlib.suppress(*UNUSABLE):
            content = read_sealed(self.record)
            if content["made_from"] == self.made_from:
                return dict(content["methods"])
        return {}

    def _place(self, evaluation: str, method: str) -> str:
        return join(self.evaluations, evaluation, "scores", score_file(method, KNOWN))
