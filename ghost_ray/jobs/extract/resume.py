"""What an interrupted run left behind, and whether this run may resume it."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from ghost_ray.config import ExtractConfig
from ghost_ray.errors import InputError, redact_values
from ghost_ray.files import MANIFEST, OutputFolder, join, kind_of, read_json, remove_tree, resolve, write_json
from ghost_ray.files.manifest import changed
from ghost_ray.jobs.extract.blocks import BLOCKS, LISTINGS, ShardGroup
from ghost_ray.jobs.extract.plan import Plan
from ghost_ray.sources import fingerprint_of
from ghost_ray.store import StoreManifest

SETTINGS = "settings.json"
_FINGERPRINT, _SHARDS, _FORMAT = "data fingerprint", "shards", "work format"
_WORK_FORMAT = 4  # of the files of an unfinished run
# Where and how fast a job runs may differ between a run and the one that resumes it.
_FREE = {
    "address",
    "num_cpus",
    "wait_for_nodes",
    "overwrite",
    "out",
    "actors",
    "gpus_per_actor",
    "max_failures",
    "batch_size",
}


def claim(output: OutputFolder, config: ExtractConfig, plan: Plan) -> Literal["new", "interrupted", "computed"]:
    """Take the staging folder for this run; returns what a run with the same settings left there.

    ``computed``: a whole store, which only is to be published.

    Raises
    ------
    InputError
        Naming what differs from the run that was started there, unless ``--overwrite`` starts over.
    """
    mine = _settings(config.model_dump(mode="json"), plan.network.weights_sha256, plan.data.fingerprint)
    mine |= {_SHARDS: _digest(plan.groups), _FORMAT: _WORK_FORMAT}
    theirs, finished = _started(output.staging)
    # A finished store no longer knows its shards; if the fingerprint needs a complete listing, it is not compared.
    unsaid = {_SHARDS, _FORMAT, *([] if plan.data.fingerprint else [_FINGERPRINT])} if finished else set()
    if theirs is not None and not finished and theirs.get(_FORMAT) != _WORK_FORMAT and not config.overwrite:
        problem = "it contains an unfinished run of another ghost_ray version"
        raise InputError("out", output.uri, problem, "`overwrite=True` starts over")
    if theirs is not None:
        differing = [name for name in mine if name not in unsaid and theirs.get(name) != mine[name]]
        if not differing:
            return "computed" if finished else "interrupted"
        if not config.overwrite:
            shown = "; ".join(_difference(name, theirs.get(name), mine[name]) for name in differing[:4])
            raise InputError(
                "out",
                output.uri,
                f"it contains an unfinished run with other settings: {shown}",
                "use the same settings to resume it, or `overwrite=True` to start over",
            )
    filesystem, path = resolve(output.staging)
    filesystem.delete_dir_contents(path, missing_dir_ok=True)
    write_json(join(output.staging, SETTINGS), mine)
    return "new"


def made_differently(made: dict[str, Any], config: ExtractConfig, plan: Plan) -> str:
    """What this run would make differently from the finished store with the manifest ``made``, in words."""
    try:
        store = StoreManifest.model_validate(made)
        theirs = _settings(store.config, store.network.weights_sha256, store.data[0].fingerprint)
    except (ValueError, IndexError):
        return "its manifest is not understood"
    if not store.is_of_this_code():
        return "by a release with other results"
    listing = plan.data.fingerprint or fingerprint_of(config.data, config.format, config.root)
    mine = _settings(config.model_dump(mode="json"), plan.network.weights_sha256, listing)
    for name, value in mine.items():
        if theirs.get(name) != value:
            return _difference(name, theirs.get(name), value)
    # Tables of classes and the store of `restrict_like` are files of their own, whose content shows in these.
    same = (store.network.restricted_to, store.class_names) == (plan.network.restricted_to, plan.class_names)
    return "" if same else "with other classes"


def _started(staging: str) -> tuple[dict[str, Any] | None, bool]:
    """Settings of the run that left this folder, and whether it left it complete."""
    try:
        if kind_of(join(staging, SETTINGS)) == "file":
            return dict(read_json(join(staging, SETTINGS))), False
        if kind_of(join(staging, MANIFEST)) == "file":
            manifest = StoreManifest.model_validate(read_json(join(staging, MANIFEST)))
            return _settings(manifest.config, manifest.network.weights_sha256, manifest.data[0].fingerprint), True
    except (ValueError, TypeError, IndexError):
        return {}, False
    return None, False


def _settings(config: dict[str, Any], weights: str | None, fingerprint: str | None) -> dict[str, Any]:
    given = {name: value for name, value in redact_values(config).items() if name not in _FREE}
    return {**given, "weights": weights, _FINGERPRINT: fingerprint}


def _digest(groups: list[ShardGroup]) -> str:
    """SHA-256 of which shards there are and how they are grouped."""
    lines = [[group.number, *(shard[:5] for shard in group.shards)] for group in groups]
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()


def _difference(name: str, before: object, now: object) -> str:
    word = name if " " in name else f"`{name}`"
    return f"{word} {changed(before, now)}"


def remove_work(staging: str) -> None:
    """Remove what only a run needs; the settings go last, since they say what the rest belongs to."""
    remove_tree(join(staging, BLOCKS))
    remove_tree(join(staging, LISTINGS))
    filesystem, path = resolve(join(staging, SETTINGS))
    filesystem.delete_file(path)
