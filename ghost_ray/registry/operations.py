"""``ghost-ray registry promote``, ``rollback``, ``label`` and ``prune``: what people do to a registry by hand."""

from __future__ import annotations

from typing import TypedDict

from ghost_ray.config.refit_settings import LabelConfig, PromoteConfig, PruneConfig, RollbackConfig
from ghost_ray.errors import Damaged, GateFailed, InputError, redact
from ghost_ray.files import join, reaching, remove_tree
from ghost_ray.registry.locks import Busy, hold
from ghost_ray.registry.looking import pointer_of
from ghost_ray.registry.pointer import Pointer, current, move, promoted, released, require_kept, rolled_back
from ghost_ray.registry.soundness import damages_of, in_words, require_sound
from ghost_ray.registry.versions import VERSIONS, read_version, remove_version, resolve_id, unfinished, version_ids


class Promotion(TypedDict):
    """What ``registry promote`` returns."""

    root: str
    current: str
    previous: str | None


class Skipped(TypedDict):
    """A version that a rollback could not return to, and why."""

    version: str
    problem: str


class Rollback(Promotion):
    """What ``registry rollback`` returns."""

    held: str | None  # None: the version that was left is damaged
    left: str
    skipped: list[Skipped]


class Labels(TypedDict):
    """What ``registry label`` returns: all labels, and the versions they stand for."""

    root: str
    labels: dict[str, str]


class Pruned(TypedDict):
    """What ``registry prune`` returns."""

    root: str
    removed: list[str]
    kept: list[str]
    dry_run: bool


def promote(config: PromoteConfig) -> Promotion:
    """Make a version the current one, whatever its gates said; a damaged one never.

    Raises
    ------
    GateFailed
        If the version is damaged and was held: it no longer is, so that a refit makes it again.
    """
    pointer_of(config.root)
    again: list[str] = []

    def decide(pointer: Pointer | None) -> Pointer:
        again.clear()
        # Also one that is held and has been lost since: a refit names it.
        held = {} if pointer is None else {entry.version: entry.version for entry in pointer.held}
        version = resolve_id(config.root, config.version, held | ({} if pointer is None else pointer.labels))
        try:
            require_sound(config.root, version)
        except Damaged as error:
            free = pointer and released(pointer, version)
            if free is None or free is pointer:
                raise
            no_longer = "it is not promoted and no longer held: run the refit, which makes it again and promotes it"
            again.append(f"{version} {error.problem}; {no_longer}")
            return free
        return promoted(pointer, version, "promote", config.reason)

    with reaching(config.root, "root"):
        pointer = move(config.root, decide)
    if again:
        raise GateFailed(again[0])
    return {"root": redact(config.root), "current": pointer.version, "previous": pointer.previous}


def rollback(config: RollbackConfig) -> Rollback:
    """Return to the previous version, or to the next older one that is intact; what is left is held if it is intact."""
    pointer_of(config.root)
    skipped: list[Skipped] = []
    left: list[str] = []

    def decide(pointer: Pointer | None) -> Pointer:
        way = [] if pointer is None else pointer.way_back()
        if pointer is None or not way:
            nowhere = "has no previous version to return to"
            raise InputError("root", redact(config.root), nowhere, "`ghost-ray registry promote` takes any version")
        skipped.clear()
        for version in way:
            problem = in_words(damages_of(config.root, version))
            if problem is None:
                left[:] = [pointer.version]
                sound = not damages_of(config.root, pointer.version)
                made_from = read_version(config.root, pointer.version).fingerprint if sound else None
                return rolled_back(pointer, version, made_from, config.reason)
            skipped.append({"version": version, "problem": problem})
        shown = "; ".join(f"{one['version']}: {one['problem']}" for one in skipped)
        raise InputError(
            "root",
            redact(config.root),
            f"no version before {pointer.version} is intact ({shown})",
            "`ghost-ray registry list` shows the others, and `ghost-ray registry promote` takes any",
        )

    with reaching(config.root, "root"):
        pointer = move(config.root, decide)
    return {
        "root": redact(config.root),
        "current": pointer.version,
        "previous": pointer.previous,
        "held": next((entry.version for entry in pointer.held if entry.version == left[0]), None),
        "left": left[0],
        "skipped": skipped,
    }


def label(config: LabelConfig) -> Labels:
    """Give a version a label, take it from another one that has it, or remove it."""
    pointer_of(config.root)

    def decide(pointer: Pointer | None) -> Pointer:
        if pointer is None:
            raise InputError("root", redact(config.root), "has no current version yet", "promote one first")
        version = _resolved(config.root, config.version, pointer)
        labels = dict(pointer.labels)
        if config.remove:
            if labels.pop(config.label, None) != version:
                raise InputError("label", config.label, f"is not a label of {version}", "`ghost-ray registry list`")
        else:
            require_kept(pointer, version)
            require_sound(config.root, version)
            labels[config.label] = version
        return pointer.model_copy(update={"labels": labels})

    with reaching(config.root, "root"):
        pointer = move(config.root, decide, insist=True)
    return {"root": redact(config.root), "labels": pointer.labels}


def prune(config: PruneConfig) -> Pruned:
    """Remove old versions; the current, the previous and labelled ones stay, and the newest ``keep`` others."""
    pointer_of(config.root)
    with reaching(config.root, "root"):
        if config.dry_run:
            removed = _removable(config.root, config.keep, current(config.root))
        else:
            removed = remove_old(config.root, config.keep)
            _remove_unfinished(config.root)
        kept = [version for version in version_ids(config.root) if version not in removed]
    return {"root": redact(config.root), "removed": removed, "kept": kept, "dry_run": config.dry_run}


def remove_old(root: str, keep: int) -> list[str]:
    """Remove the versions that are neither current, previous, labelled nor among the newest ``keep`` others.

    Returns their ids. The versions to remove are first written into the pointer, in a step that fails if another
    process moved it: from then on they cannot be promoted. While no version is current, nothing is removed.
    """

    def announce(pointer: Pointer | None) -> Pointer:
        if pointer is None:
            raise InputError("root", redact(root), "has no current version yet", "promote one first")
        chosen = _removable(root, keep, pointer)
        return pointer if chosen == pointer.removing else pointer.model_copy(update={"removing": chosen})

    if current(root) is None:
        return []
    removed = move(root, announce, insist=True).removing
    for version in removed:
        remove_version(root, version)
    if removed:
        move(root, lambda pointer: _without(pointer, removed), insist=True)
    return removed


def _without(pointer: Pointer | None, removed: list[str]) -> Pointer:
    assert pointer is not None  # it was there when they were announced, and is never deleted
    left = [version for version in pointer.removing if version not in removed]
    return pointer.model_copy(update={"removing": left})


def _removable(root: str, keep: int, pointer: Pointer | None) -> list[str]:
    if pointer is None:
        return []
    needed = {pointer.version, pointer.previous, *pointer.labels.values()}
    others = [version for version in version_ids(root) if version not in needed]
    return others[: len(others) - keep] if keep < len(others) else []


def _remove_unfinished(root: str) -> None:
    """Remove the remains of killed refits, unless a refit is running."""
    try:
        with hold(root, "refit"):
            for name in unfinished(root):
                remove_tree(join(root, VERSIONS, name))
    except Busy:
        return


def _resolved(root: str, text: str, pointer: Pointer | None) -> str:
    return resolve_id(root, text, {} if pointer is None else pointer.labels)
