"""``ghost-ray registry …`` and ``ghost-ray status``: what people do with a registry by hand."""

from __future__ import annotations

import datetime
from typing import Any

from ghost_ray.errors import InputError, one_line
from ghost_ray.files import join, kind_of, read_json, redact, remove_tree
from ghost_ray.manifest import Part
from ghost_ray.refit_config import PromoteConfig, PruneConfig, RegistryConfig, ShowConfig, StatusConfig
from ghost_ray.registry.attempts import last_attempts
from ghost_ray.registry.locks import Busy, hold, holder
from ghost_ray.registry.pointer import Pointer, current, move, promoted, rolled_back
from ghost_ray.registry.versions import (
    VERSIONS,
    VersionManifest,
    read_version,
    remove_version,
    resolve_id,
    unfinished,
    version_folder,
    version_ids,
)


def list_versions(config: RegistryConfig) -> dict[str, Any]:
    """All versions, newest first."""
    pointer = _pointer(config.root)
    versions = [_brief(read_version(config.root, version), pointer) for version in version_ids(config.root)]
    return {"root": redact(config.root), "current": _name(pointer), "versions": versions[::-1]}


def show_version(config: ShowConfig) -> dict[str, Any]:
    """One version in full, with its drift against the one before it."""
    pointer = _pointer(config.root)
    if not config.version and pointer is None:
        raise InputError("VERSION", "", "there is no current version", "name one")
    version = resolve_id(config.root, config.version) if config.version else pointer.version  # type: ignore[union-attr]
    manifest = read_version(config.root, version)
    return {
        **_brief(manifest, pointer),
        "gates": manifest.gates,
        "inputs": manifest.inputs,
        "data": [part.model_dump(mode="json") for part in manifest.data],
        "drift": _drift(config.root, version),
        "folder": redact(version_folder(config.root, version)),
    }


def promote(config: PromoteConfig) -> dict[str, Any]:
    """Make a version the current one, whatever its gates said."""
    _pointer(config.root)

    def decide(pointer: Pointer | None) -> Pointer:
        version = resolve_id(config.root, config.version)
        read_version(config.root, version)
        return promoted(pointer, version, "promote")

    pointer = move(config.root, decide)
    return {"root": redact(config.root), "current": pointer.version, "previous": pointer.previous}


def rollback(config: RegistryConfig) -> dict[str, Any]:
    """Return to the version that was current before this one."""
    _pointer(config.root)

    def decide(pointer: Pointer | None) -> Pointer:
        if pointer is None or pointer.previous is None:
            problem = "has no previous version to return to"
            raise InputError("ROOT", redact(config.root), problem, "`ghost-ray registry promote` takes any version")
        read_version(config.root, pointer.previous)
        return rolled_back(pointer, read_version(config.root, pointer.version).fingerprint)

    pointer = move(config.root, decide)
    return {
        "root": redact(config.root),
        "current": pointer.version,
        "previous": pointer.previous,
        "held": pointer.held[-1].version,
    }


def prune(config: PruneConfig) -> dict[str, Any]:
    """Remove old versions; the current and the previous one and the newest ``keep`` stay."""
    _pointer(config.root)
    if config.dry_run:
        removed = _removable(config.root, config.keep)
    else:
        removed = remove_old(config.root, config.keep)
        remove_unfinished(config.root)
    kept = [version for version in version_ids(config.root) if version not in removed]
    return {"root": redact(config.root), "removed": removed, "kept": kept, "dry_run": config.dry_run}


def remove_old(root: str, keep: int) -> list[str]:
    """Remove the versions that are neither current, previous nor among the newest ``keep``; returns their ids."""
    # Under the pointer's lock: no version is promoted between being chosen here and being removed.
    with hold(root, "promotion", wait=30.0):
        removed = _removable(root, keep)
        for version in removed:
            remove_version(root, version)
    return removed


def _removable(root: str, keep: int) -> list[str]:
    pointer = current(root)
    versions = version_ids(root)
    kept = set(versions[len(versions) - keep :] if keep else [])
    if pointer is not None:
        kept |= {pointer.version, *([pointer.previous] if pointer.previous else [])}
    return [version for version in versions if version not in kept]


def remove_unfinished(root: str) -> None:
    """Remove what killed refits left, unless a refit is at work on it now."""
    try:
        with hold(root, "refit"):
            for name in unfinished(root):
                remove_tree(join(root, VERSIONS, name))
    except Busy:
        return


def status(config: StatusConfig) -> dict[str, Any]:
    """Which version serves and since when, what is going on, and how the last refits ended."""
    pointer = _pointer(config.root)
    running = holder(config.root, "refit")
    result: dict[str, Any] = {
        "root": redact(config.root),
        "current": None,
        "running": running,
        "versions": len(version_ids(config.root)),
        "held": [held.version for held in pointer.held] if pointer else [],
        "attempts": last_attempts(config.root, config.attempts, running=running is not None),
    }
    if pointer is not None:
        age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(pointer.promoted)
        brief = _brief(read_version(config.root, pointer.version), pointer)
        result["current"] = {**brief, "promoted": pointer.promoted, "age_seconds": int(age.total_seconds())}
        result["previous"] = pointer.previous
    return result


def _pointer(root: str) -> Pointer | None:
    """The pointer of a registry; InputError where there is no registry at all."""
    pointer = current(root)
    if pointer is None and kind_of(join(root, VERSIONS)) != "folder" and kind_of(join(root, "attempts")) != "folder":
        raise InputError("ROOT", redact(root), "is no registry", "`ghost-ray refit --config FILE` makes one")
    return pointer


class _Drift(Part):
    """What is shown of a version's ``drift.json``."""

    previous: str | None = None
    changed: list[str] = []


def _drift(root: str, version: str) -> dict[str, Any] | None:
    where = join(version_folder(root, version), "drift.json")
    if kind_of(where) != "file":
        return None
    try:
        return _Drift.model_validate(read_json(where)).model_dump(mode="json")
    except (ValueError, OSError) as error:
        raise InputError("VERSION", version, f"drift.json {one_line(error)}", "restore the folder") from None


def _name(pointer: Pointer | None) -> str | None:
    return None if pointer is None else pointer.version


def _brief(manifest: VersionManifest, pointer: Pointer | None) -> dict[str, Any]:
    refused = [gate["name"] for gate in manifest.gates if not gate["passed"]]
    return {
        "version": manifest.version,
        "created": manifest.created,
        "role": _role(manifest.version, pointer),
        "network": manifest.network.describe(),
        "rows": manifest.rows,
        "summary": manifest.summary,
        "refused_by": refused,
    }


def _role(version: str, pointer: Pointer | None) -> str | None:
    if pointer is None:
        return None
    if version == pointer.version:
        return "current"
    if version == pointer.previous:
        return "previous"
    return "held" if any(held.version == version for held in pointer.held) else None
