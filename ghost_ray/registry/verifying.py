"""``ghost-ray verify PLACE``: every file of a result, or of everything in a registry, against its manifest."""

from __future__ import annotations

from typing import TypedDict

from ghost_ray.config.refit_settings import VerifyConfig
from ghost_ray.errors import Damaged, DamageFound, InputError, one_line, redact
from ghost_ray.files import MANIFEST, folders_in, join, kind_of, name_of, reaching, read_json, read_sealed
from ghost_ray.files.digests import Damage, Digest, unlisted, wrong_digests
from ghost_ray.files.json_files import SEAL
from ghost_ray.progress import progress
from ghost_ray.registry.pointer import CURRENT, find_pointer
from ghost_ray.registry.versions import VERSIONS, WORK, version_ids

STORES = f"{WORK}/stores"


class Verified(TypedDict):
    """What ``verify`` returns."""

    place: str
    results: int  # folders with a manifest that were looked at
    files: int
    bytes: int
    damaged: list[dict[str, str]]  # file, problem
    unlisted: list[str]  # results of 0.1, whose manifests name no files


def verify(config: VerifyConfig) -> Verified:
    """Read every file that a manifest names, and compare it with what was written.

    Raises
    ------
    DamageFound
        If a file is missing or has other bytes; the result names each. With ``strict``, also if a manifest has no
        seal or lists no files, or a file is not listed.
    """
    place = config.place
    with reaching(place, "place"):
        folders, damages = _results_in(place)
        listed: dict[str, dict[str, Digest] | None] = {}
        for folder in folders:
            try:
                listed[folder] = _digests(join(place, folder) if folder else place, config.strict)
            except ValueError as error:
                damages.append(Damage(_below(folder, MANIFEST), one_line(error)))
        total = sum(digest.size for digests in listed.values() for digest in (digests or {}).values())
        with progress("verify", total, "bytes") as shown:
            for folder, digests in listed.items():
                found = wrong_digests(
                    join(place, folder) if folder else place, digests or {}, lambda digest: shown.advance(digest.size)
                )
                if config.strict:
                    found += unlisted(join(place, folder) if folder else place, digests)
                damages += [Damage(_below(folder, damage.file), damage.problem) for damage in found]
    result: Verified = {
        "place": redact(place),
        "results": len(folders),
        "files": sum(1 + len(digests or {}) for digests in listed.values()),
        "bytes": total,
        "damaged": [damage._asdict() for damage in sorted(damages)],
        "unlisted": [folder or "." for folder, digests in listed.items() if digests is None],
    }
    if damages:
        count = len(damages)
        what = "problem" if config.strict else "damaged file"
        raise DamageFound(f"{count} {what}{'s' if count > 1 else ''}: {damages[0]}", dict(result))
    return result


def _results_in(place: str) -> tuple[list[str], list[Damage]]:
    """The folders below a place that have their own manifest, and damage found on the way."""
    if kind_of(join(place, MANIFEST)) == "file":
        return [""], []
    if kind_of(place) != "folder":
        raise InputError("place", redact(place), "is not a folder", "name a result, a registry, or a folder of results")
    if kind_of(join(place, VERSIONS)) == "folder" or kind_of(join(place, CURRENT)) == "file":
        return _registry(place)
    found = [name for name in folders_in(place) if kind_of(join(place, name, MANIFEST)) == "file"]
    if not found:
        hint = "name a store, a model, an audit, an evaluation or a registry"
        raise InputError("place", redact(place), "holds no result of ghost_ray", hint)
    return found, []


def _registry(root: str) -> tuple[list[str], list[Damage]]:
    damages: list[Damage] = []
    try:
        found = find_pointer(root)
        if found.trouble is not None:
            damages.append(Damage(CURRENT, found.trouble.removeprefix(f"{CURRENT} ")))
        versions = version_ids(root)
        if found.pointer is not None and found.pointer.version not in versions:
            damages.append(Damage(f"{VERSIONS}/{found.pointer.version}", "is the current version and is missing"))
    except Damaged as error:
        damages.append(Damage(CURRENT, error.problem.removeprefix(f"{CURRENT} ")))
        versions = version_ids(root)
    stores = [name for name in folders_in(join(root, STORES)) if kind_of(join(root, STORES, name, MANIFEST)) == "file"]
    return [*(f"{VERSIONS}/{name}" for name in versions), *(f"{STORES}/{name}" for name in stores)], damages


def _digests(folder: str, strict: bool) -> dict[str, Digest] | None:
    """The digests in the manifest of a result; None if it has none. ``strict``, the manifest must have a seal."""
    raw = read_sealed(join(folder, MANIFEST))
    if strict and SEAL not in read_json(join(folder, MANIFEST)):
        raise ValueError("has no seal")
    if not isinstance(raw, dict) or raw.get("format") != "ghost_ray":
        raise ValueError("is not a manifest of ghost_ray")
    if raw.get("kind") == "version" and raw.get("version") != name_of(folder):
        raise ValueError(f"belongs to version {one_line(raw.get('version'), 40)}")
    listed = raw.get("digests")
    if not isinstance(listed, dict | None):
        raise ValueError("has no table of digests")
    return None if listed is None else {name: Digest.model_validate(digest) for name, digest in listed.items()}


def _below(folder: str, file: str) -> str:
    return f"{folder}/{file}" if folder else file
