"""Versions of a model, the pointer to the one that serves, and the way in for services."""

from __future__ import annotations

from ghost_ray.registry.attempts import Attempt, last_attempts
from ghost_ray.registry.loading import Loaded, load
from ghost_ray.registry.locks import Busy, Lock, hold, holder
from ghost_ray.registry.pointer import Pointer, current, move, promoted, rolled_back
from ghost_ray.registry.versions import (
    VERSIONS,
    WORK,
    AnsweredGate,
    Summary,
    VersionManifest,
    find_by_fingerprint,
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
    "WORK",
    "AnsweredGate",
    "Attempt",
    "Busy",
    "Loaded",
    "Lock",
    "Pointer",
    "Summary",
    "VersionManifest",
    "current",
    "find_by_fingerprint",
    "hold",
    "holder",
    "last_attempts",
    "load",
    "move",
    "new_id",
    "promoted",
    "read_version",
    "remove_version",
    "resolve_id",
    "rolled_back",
    "unfinished",
    "version_folder",
    "version_ids",
]
