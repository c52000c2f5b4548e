"""Versions of a model, the pointer to the current one, and loading for services."""

from __future__ import annotations

from ghost_ray.registry.attempts import Attempt, AttemptRecord, Outcome, last_attempts
from ghost_ray.registry.loading import Loaded, load
from ghost_ray.registry.locks import Busy, Holder, Lock, hold, holder
from ghost_ray.registry.pointer import Pointer, current, mend, move, promoted
from ghost_ray.registry.soundness import damages_of, in_words, readable_version
from ghost_ray.registry.versions import (
    VERSIONS,
    WEIGHTS,
    WORK,
    AnsweredGate,
    Summary,
    VersionManifest,
    new_id,
    read_version,
    remove_version,
    resolve_id,
    unfinished,
    version_folder,
    version_ids,
)

__all__ = [
    "VERSIONS",
    "WEIGHTS",
    "WORK",
    "AnsweredGate",
    "Attempt",
    "AttemptRecord",
    "Busy",
    "Holder",
    "Loaded",
    "Lock",
    "Outcome",
    "Pointer",
    "Summary",
    "VersionManifest",
    "current",
    "damages_of",
    "hold",
    "holder",
    "in_words",
    "last_attempts",
    "load",
    "mend",
    "move",
    "new_id",
    "promoted",
    "read_version",
    "readable_version",
    "remove_version",
    "resolve_id",
    "unfinished",
    "version_folder",
    "version_ids",
]
