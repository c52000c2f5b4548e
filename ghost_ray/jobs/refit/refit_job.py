"""The refit itself: compare, make a version, check the gates, move the pointer."""

from __future__ import annotations

import contextlib

from ghost_ray import registry
from ghost_ray.config.refit_settings import RefitConfig
from ghost_ray.errors import GateFailed
from ghost_ray.files import (
    folders_in,
    join,
    kind_of,
    names_in,
    reaching,
    remove_file,
    remove_tree,
    require_lasting,
)
from ghost_ray.jobs.refit.growth import LISTING
from ghost_ray.jobs.refit.inputs import Inputs, read_inputs
from ghost_ray.jobs.refit.log import Log
from ghost_ray.jobs.refit.planning import changes, steps
from ghost_ray.jobs.refit.results import RefitResult, outcome_of, reason_of
from ghost_ray.jobs.refit.version_making import ask, make_version, reference
from ghost_ray.registry import Pointer, VersionManifest
from ghost_ray.registry.operations import remove_old
from ghost_ray.registry.verifying import STORES

# If two start at the same time, the second waits this long: the first may have nothing to do.
_LOCK_SECONDS = 5.0


def run(config: RefitConfig) -> RefitResult:
    """Bring the registry up to date; returns what was done. With ``plan``, only what would be.

    Raises
    ------
    GateFailed
        If a version was made and a gate refused it; the current one stays.
    Busy
        If another refit is working on the same registry.
    """
    require_lasting(config.registry, "registry")
    log = Log()
    if config.plan:
        return _planned(config)
    with reaching(config.registry, "registry"):
        kind_of(config.registry)  # a store that hangs is given up sooner when it is read than when it is written
        attempt = registry.Attempt(config.registry)
    try:
        result = _run(config, log, attempt)
    except BaseException as error:
        outcome = outcome_of(error)
        with contextlib.suppress(OSError):  # the user is told the first error
            attempt.end(outcome, reason=reason_of(error))
        log.line(outcome, reason=error)
        raise
    with reaching(config.registry, "registry"):
        attempt.end(_ended(result), version=result["version"], reason=result["reason"])
    log.line(result["outcome"].replace(" ", "_"))
    return result


def _ended(result: RefitResult) -> registry.Outcome:
    assert result["outcome"] != "planned"  # this does not count as an attempt
    return result["outcome"]


def _planned(config: RefitConfig) -> RefitResult:
    inputs = read_inputs(config)
    with reaching(config.registry, "registry"):
        settled = _settled(config, inputs)
        if settled:
            return settled
        made = _made_before(config.registry, inputs)
        changed = changes(config.registry, inputs)
        serving = reference(config.registry, registry.current(config.registry))
        todo = [] if made else steps(config, inputs, changed, serving)
    again = f"{made.version} was made from these inputs; its gates are checked again" if made else ""
    return {
        "outcome": "planned",
        "version": made.version if made else registry.new_id(config.registry, inputs.fingerprint),
        "reason": again or f"a new version is needed: {', '.join(changed)} changed",
        "changed": changed,
        "steps": todo,
    }


def _run(config: RefitConfig, log: Log, attempt: registry.Attempt) -> RefitResult:
    inputs = read_inputs(config)
    root = config.registry
    with reaching(root, "registry"):
        registry.mend(root)
        settled = _settled(config, inputs)
    if settled:
        log.version = settled["version"] or "-"
        return settled
    with registry.hold(root, "refit", wait=_LOCK_SECONDS, job=log.job) as lock:
        with reaching(root, "registry"):
            # Another refit may have ended between the first check and the lock.
            settled = _settled(config, inputs)
            if settled:
                return settled
            made = _made_before(root, inputs)
            log.version = made.version if made else registry.new_id(root, inputs.fingerprint)
            attempt.note(log.version)
            changed = changes(root, inputs)
        log.line("changed", parts=",".join(changed))
        if made is None:
            made = make_version(config, inputs, changed, log, lock)
        lock.check()
        with reaching(root, "registry"):
            try:
                pointer = registry.move(root, lambda pointer: _promotion(config, made, pointer), insist=True)
            finally:
                _clean_up(config, made)
    return {
        "outcome": "promoted",
        "version": made.version,
        "reason": f"{made.version} is current: {', '.join(changed)} changed",
        "previous": pointer.previous,
        "changed": changed,
        "summary": made.summary,
        "gates": made.gates,
        "seconds": log.seconds,
    }


def _settled(config: RefitConfig, inputs: Inputs) -> RefitResult | None:
    """The result where there is nothing to do."""
    root = config.registry
    pointer = registry.current(root)
    if pointer is None:
        return None
    serving = registry.readable_version(root, pointer.version)
    if serving is not None and not inputs.changed_since(serving):
        if registry.damages_of(root, pointer.version):
            return None
        reason = f"up to date: weights, data and settings are those of {pointer.version}"
        return {"outcome": "up to date", "version": pointer.version, "reason": reason}
    held = pointer.held_versions(inputs.fingerprint)
    rolled_back = next((version for version in held if _holds(root, version, inputs)), None)
    if rolled_back is None:
        return None
    reason = (
        f"the version of these weights, data and settings, {rolled_back}, was rolled back; {pointer.version} stays "
        f"current until someone promotes {rolled_back}"
    )
    return {"outcome": "held", "version": pointer.version, "reason": reason}


def _holds(root: str, version: str, inputs: Inputs) -> bool:
    """Whether a version that was rolled back is what the present software would make again."""
    manifest = registry.readable_version(root, version)
    return manifest is None or inputs.same_software(manifest.versions)


def _made_before(root: str, inputs: Inputs) -> VersionManifest | None:
    """The newest intact version made from exactly these inputs, or None."""
    for version in reversed(registry.version_ids(root)):
        if version.endswith(inputs.fingerprint[:12]):
            manifest = registry.readable_version(root, version)
            if manifest and not inputs.changed_since(manifest) and not registry.damages_of(root, version):
                return manifest
    return None


def _promotion(config: RefitConfig, made: VersionManifest, pointer: Pointer | None) -> Pointer:
    """Move the pointer to the new version, if the gates pass against the version that is current now."""
    gates = ask(config, made.summary, reference(config.registry, pointer))
    refused = [gate["text"] for gate in gates if not gate["passed"]]
    if refused:
        stays = f"{pointer.version} stays current" if pointer else "there is no current version"
        reason = f"{made.version} is not promoted, {stays}: {'; '.join(refused)}"
        result: RefitResult = {
            "outcome": "refused",
            "version": made.version,
            "reason": reason,
            "summary": made.summary,
            "gates": gates,
        }
        raise GateFailed(reason, dict(result))
    return registry.promoted(pointer, made.version, "refit")


def _clean_up(config: RefitConfig, made: VersionManifest) -> None:
    """Remove old versions, what killed refits left, and the stores that neither this nor the current version needs."""
    root = config.registry
    remove_old(root, config.keep)
    for name in registry.unfinished(root):
        remove_tree(join(root, registry.VERSIONS, name))
    serving = reference(root, registry.current(root)) or made
    kept = {*made.stores.values(), *serving.stores.values()}
    for name in folders_in(join(root, STORES)):
        if name.removeprefix(".").removesuffix(".partial") not in kept:
            remove_tree(join(root, STORES, name))
    for name in names_in(join(root, STORES)):
        if name.removesuffix(LISTING) not in kept:
            remove_file(join(root, STORES, name))
