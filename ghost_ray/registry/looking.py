"""``ghost-ray registry list`` and ``show``: what a registry holds. One damaged version hides no other."""

from __future__ import annotations

from typing import Any, TypedDict

from pydantic import ValidationError

from ghost_ray.config.refit_settings import RegistryConfig, ShowConfig
from ghost_ray.errors import InputError, one_line, redact
from ghost_ray.files import join, kind_of, reaching, read_json
from ghost_ray.files.json_files import MAX_CHECKED_VALUES
from ghost_ray.files.manifest import JsonRecord, first_problem
from ghost_ray.registry.attempts import ATTEMPTS
from ghost_ray.registry.pointer import Pointer, find_pointer
from ghost_ray.registry.soundness import damages_of, in_words, readable_version
from ghost_ray.registry.versions import (
    VERSIONS,
    AnsweredGate,
    Summary,
    read_version,
    resolve_id,
    version_folder,
    version_ids,
)


class Brief(TypedDict):
    """A version in a few words; fields of a damaged manifest are None."""

    version: str
    role: str | None  # current, previous or held
    labels: list[str]
    created: str | None
    network: str | None
    rows: int | None
    summary: Summary
    refused_by: list[str]
    damage: str | None


class Listing(TypedDict):
    """What ``registry list`` returns."""

    root: str
    current: str | None
    versions: list[Brief]
    trouble: str | None  # with the pointer


class Drift(JsonRecord):
    """What is shown of a version's ``drift.json``."""

    previous: str | None = None
    changed: list[str] = []


class Shown(Brief):
    """What ``registry show`` returns."""

    gates: list[AnsweredGate]
    inputs: dict[str, str]
    data: list[dict[str, Any]]
    drift: dict[str, Any] | None
    folder: str
    weights: str | None  # where they were when the version was made; None: the network's published ones
    kept_weights: str | None  # the copy in the folder
    history: list[dict[str, Any]]  # the moves of the pointer to this version


def list_versions(config: RegistryConfig) -> Listing:
    """All versions, newest first; the sizes of their files are compared."""
    root = config.root
    pointer, trouble = pointer_of(root)
    with reaching(root, "root"):
        found = [brief(root, version, pointer, thorough=False) for version in version_ids(root)]
    name = None if pointer is None else pointer.version
    return {"root": redact(root), "current": name, "versions": found[::-1], "trouble": trouble}


def show_version(config: ShowConfig) -> Shown:
    """One version in full, with its drift against the one before it, and when it became current."""
    root = config.root
    pointer, _ = pointer_of(root)
    with reaching(root, "root"):
        if config.version:
            version = resolve_id(root, config.version, {} if pointer is None else pointer.labels)
        elif pointer is None:
            raise InputError("version", "", "there is no current version", "name one")
        else:
            version = pointer.version
        manifest = read_version(root, version, alone=True)
        moves = [] if pointer is None else [move for move in pointer.history if move.version == version]
        return {
            **brief(root, version, pointer, thorough=True),
            "gates": manifest.gates,
            "inputs": manifest.inputs,
            "data": [part.model_dump(mode="json") for part in manifest.data],
            "drift": _drift(root, version),
            "folder": redact(version_folder(root, version)),
            "weights": manifest.weights,
            "kept_weights": manifest.kept_weights,
            "history": [move.model_dump(mode="json") for move in moves],
        }


def pointer_of(root: str) -> tuple[Pointer | None, str | None]:
    """The pointer of a registry and what is wrong with its file; InputError if there is no registry at all."""
    found = find_pointer(root)
    with reaching(root, "root"):
        places = (VERSIONS, ATTEMPTS) if found.pointer is None else ()
        if places and all(kind_of(join(root, place)) != "folder" for place in places):
            raise InputError("root", redact(root), "is no registry", "`ghost-ray refit --config FILE` makes one")
    return found.pointer, found.trouble


def brief(root: str, version: str, pointer: Pointer | None, *, thorough: bool) -> Brief:
    """A version in a few words; ``thorough``, every byte of it is compared."""
    manifest = readable_version(root, version)
    labels = {} if pointer is None else pointer.labels
    return {
        "version": version,
        "role": _role(version, pointer),
        "labels": sorted(name for name, labelled in labels.items() if labelled == version),
        "created": None if manifest is None else manifest.created,
        "network": None if manifest is None else manifest.network.describe(),
        "rows": None if manifest is None else manifest.rows,
        "summary": {} if manifest is None else manifest.summary,
        "refused_by": [] if manifest is None else [gate["name"] for gate in manifest.gates if not gate["passed"]],
        "damage": in_words(damages_of(root, version, thorough=thorough)),
    }


def _drift(root: str, version: str) -> dict[str, Any] | None:
    where = join(version_folder(root, version), "drift.json")
    if kind_of(where) != "file":
        return None
    try:
        return Drift.model_validate(read_json(where, MAX_CHECKED_VALUES)).model_dump(mode="json")
    except ValidationError as error:
        raise InputError("version", version, f"drift.json: {first_problem(error)}", "restore the folder") from None
    except ValueError as error:
        raise InputError("version", version, f"drift.json {one_line(error)}", "restore the folder") from None


def _role(version: str, pointer: Pointer | None) -> str | None:
    if pointer is None:
        return None
    if version == pointer.version:
        return "current"
    if version == pointer.previous:
        return "previous"
    return "held" if any(held.version == version for held in pointer.held) else None
