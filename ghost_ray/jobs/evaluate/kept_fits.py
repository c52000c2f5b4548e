"""Fits kept for later evaluations of the same training store: per method one file of arrays and one description.

The description is sealed. It says what the fit was made from and has the digest of the arrays; it is written after
them. Files that are damaged, or were made from something else, are ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ghost_ray.config import EvaluateConfig
from ghost_ray.errors import GhostRayError
from ghost_ray.files import join, names_in, read_sealed, remove_file, write_sealed
from ghost_ray.files.digests import Digest
from ghost_ray.files.manifest import RESULT_VERSIONS
from ghost_ray.files.tensors import read_tensors, write_tensors
from ghost_ray.jobs.evaluate.costs import fitted_bytes
from ghost_ray.jobs.evaluate.evaluate_plan import Plan
from ghost_ray.jobs.evaluate.fit_values import Arrays, describe, rebuild
from ghost_ray.jobs.evaluate.fitted_methods import Fitted, Restored, is_bank, merged_passes
from ghost_ray.jobs.evaluate.scoring import file_name
from ghost_ray.scorers import Scorer

# Of one method. A covariance per class, or all training rows as extreme vectors, may be as large as the store itself.
MOST_BYTES = 1 << 30
_LAYOUT = 1  # of the files here
UNUSABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, GhostRayError)  # of files that may hold anything
_WHAT, _ARRAYS = ".json", ".safetensors"


def made_from(config: EvaluateConfig, plan: Plan) -> str:
    """Digest of everything that determines a fit, apart from the method and its options."""
    versions = {"layout": _LAYOUT, "results": RESULT_VERSIONS["evaluation"]}
    found = hashlib.sha256(json.dumps([versions, plan.fit.store.fingerprint(), config.seed]).encode())
    head = next((scorer.head_ for scorer in plan.scorers.values() if scorer.head_ is not None), None)
    if head is not None:
        found.update(head.weight.tobytes() + head.bias.tobytes())
    return found.hexdigest()


def is_kept(scorer: Scorer) -> bool:
    """Whether a later run can use the fit. A bank is not kept: it consists of the training rows."""
    return scorer.kept_classes() is not None and bool(merged_passes(scorer) or scorer.by_class)


@dataclass(frozen=True)
class KeptFits:
    """The fits in a folder that were made from one training store, head and seed."""

    folder: str
    made_from: str

    def restore(self, scorers: dict[str, Scorer]) -> Restored:
        """Restore the fits of bound methods that are kept and undamaged."""
        restored: Restored = {}
        for method, scorer in scorers.items():
            if is_kept(scorer):
                with contextlib.suppress(*UNUSABLE):
                    values, restored[method] = self._read(method, scorer)
                    vars(scorer).update(values)
        return restored

    def _read(self, method: str, scorer: Scorer) -> tuple[dict[str, Any], list[Any]]:
        what = self._description(file_name(method) + _WHAT)
        if what["method"] != method:
            raise ValueError("is of another method")
        where = self._place(method) + _ARRAYS
        arrays = read_tensors(where, "out", where, Digest.model_validate(what["arrays"]))
        classes = scorer.kept_classes() or ()
        values, shards = (rebuild(what[part], classes, arrays) for part in ("values", "shards"))
        if not all(name.isidentifier() and name.endswith("_") for name in values):
            raise ValueError("has names that are not part of a fit")
        return values, list(shards)

    def save(self, fitted: Fitted, restored: Restored) -> None:
        """Keep new fits, except those that are too large or of an unknown kind."""
        for method, scorer in fitted.scorers().items():
            if is_kept(scorer) and method not in restored:
                # A kept fit saves work later; this run does not need it.
                with contextlib.suppress(OSError, ValueError):
                    self._write(method, scorer, fitted)

    def _write(self, method: str, scorer: Scorer, fitted: Fitted) -> None:
        in_shards = method in fitted.sharded and not is_bank(scorer)
        if fitted_bytes(scorer) + (fitted.bytes_in_shards(method) if in_shards else 0) > MOST_BYTES:
            return
        classes = scorer.kept_classes() or ()
        arrays: Arrays = {}
        values = describe(scorer.fitted_values(), classes, arrays)
        shards = describe(fitted.contents_of_shards(method) if in_shards else [], classes, arrays)
        digest = write_tensors(self._place(method) + _ARRAYS, arrays)
        what = {"method": method, "made_from": self.made_from, "arrays": digest.model_dump()}
        write_sealed(self._place(method) + _WHAT, {**what, "values": values, "shards": shards})

    def remove_others(self) -> None:
        """Remove fits that no later run can use: made from something else, damaged or half written."""
        usable: set[str] = set()
        names = names_in(self.folder)
        for name in names:
            if name.endswith(_WHAT):
                with contextlib.suppress(*UNUSABLE):
                    self._description(name)
                    usable |= {name, name.removesuffix(_WHAT) + _ARRAYS}
        for name in names:
            if name not in usable:
                remove_file(join(self.folder, name))

    def _description(self, name: str) -> dict[str, Any]:
        what: dict[str, Any] = read_sealed(join(self.folder, name))
        if what["made_from"] != self.made_from:
            raise ValueError("was made from something else")
        return what

    def _place(self, method: str) -> str:
        return join(self.folder, file_name(method))
