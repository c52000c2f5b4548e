"""What must be computed for a version, and why: printed before the work, and all that ``plan`` does."""

from __future__ import annotations

from ghost_ray import registry
from ghost_ray.config.refit_settings import RefitConfig
from ghost_ray.errors import InputError
from ghost_ray.files import MANIFEST, folders_in, join, kind_of
from ghost_ray.files.manifest import RESULT_VERSIONS
from ghost_ray.jobs.fingerprints import digest
from ghost_ray.jobs.refit.inputs import FIT, KNOWN, Inputs, data_sections
from ghost_ray.jobs.refit.results import Step
from ghost_ray.registry import VersionManifest
from ghost_ray.registry.verifying import STORES
from ghost_ray.store import Store

_NETWORK = ("weights", "settings", "software", "results")


def choose_stores(config: RefitConfig, inputs: Inputs) -> dict[str, str]:
    """For each role the name of the store to use: a finished valid one, else the one to be made."""
    present = folders_in(join(config.registry, STORES))
    return {role: _chosen(config, inputs, role, present) for role in data_sections(config)}


def _chosen(config: RefitConfig, inputs: Inputs, role: str, present: list[str]) -> str:
    new = inputs.store_name(role, config.network)
    stem = inputs.store_stem(role, config.network)
    for name in sorted(present, key=lambda name: name != new):
        if name == stem or name.startswith(f"{stem}-"):
            store = usable_store(join(config.registry, STORES, name))
            if store is not None and inputs.same_software(store.manifest.versions):
                return name
    return new


def usable_store(place: str) -> Store | None:
    """A finished store whose files have the sizes they had; None if there is none."""
    if kind_of(join(place, MANIFEST)) != "file":
        return None
    try:
        return Store.open(place)
    except InputError:
        return None


def steps(config: RefitConfig, inputs: Inputs, changed: list[str], previous: VersionManifest | None) -> list[Step]:
    """Every part of the version that these inputs give."""
    found: list[Step] = []
    for role, name in choose_stores(config, inputs).items():
        if usable_store(join(config.registry, STORES, name)) is not None:
            found.append({"what": f"store.{role}", "action": "use", "why": "weights, data and options are the same"})
            continue
        parts = [part for part in changed if part in (*_NETWORK, f"data.{role}")]
        why = _why(parts, previous) if parts or previous is None else "its store is missing or damaged"
        if parts == [f"data.{role}"]:
            why += "; only new images are extracted if the data only grew"
        found.append({"what": f"store.{role}", "action": "compute", "why": why})
    keys = stage_keys(config, choose_stores(config, inputs))
    kept = reusable(config.registry, keys, previous)
    for stage in keys:
        if stage in kept:
            found.append({"what": stage, "action": "use", "why": "its stores, settings and code are the same"})
        else:
            found.append({"what": stage, "action": "compute", "why": _why(changed, previous)})
    return found


def stage_keys(config: RefitConfig, stores: dict[str, str]) -> dict[str, str]:
    """The inputs of each result of a version: the stores by name, the settings, and the version of its code."""
    chosen_on = None if config.accept_known is None else stores[KNOWN]
    keys = {
        "model": [stores[FIT], RESULT_VERSIONS["model"], config.accept_known, chosen_on],
        "audit": [stores[FIT], RESULT_VERSIONS["audit"], config.audit.model_dump(mode="json")],
    }
    if config.unknown:
        keys["evaluation"] = [stores, RESULT_VERSIONS["evaluation"], config.evaluate.model_dump(mode="json")]
    return {stage: digest(made_from) for stage, made_from in keys.items()}


def reusable(root: str, keys: dict[str, str], previous: VersionManifest | None) -> list[str]:
    """The results of the previous version that are still valid, if it is intact."""
    kept = [] if previous is None else [stage for stage, key in keys.items() if previous.stages.get(stage) == key]
    return [] if previous is None or not kept or registry.damages_of(root, previous.version) else kept


def _why(changed: list[str], previous: VersionManifest | None) -> str:
    if previous is None:
        return "there is no version yet"
    return f"changed: {', '.join(changed)}"


def changes(root: str, inputs: Inputs) -> list[str]:
    """What differs from the current version: parts of its inputs, and ``damage`` if its files are damaged."""
    pointer = registry.current(root)
    if pointer is None:
        return list(inputs.parts)
    serving = registry.readable_version(root, pointer.version)
    changed = list(inputs.parts) if serving is None else inputs.changed_since(serving)
    return changed or (["damage"] if registry.damages_of(root, pointer.version) else [])
