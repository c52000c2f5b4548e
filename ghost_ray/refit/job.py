"""The refit itself: compare, make a version, ask the gates, move the pointer."""

from __future__ import annotations

import contextlib
from typing import Any

from ghost_ray import registry
from ghost_ray.errors import GateFailed, InputError, one_line
from ghost_ray.files import OutputFolder, folders_in, join, names_in, redact, remove_file, remove_tree, write_json
from ghost_ray.manifest import provenance, write_manifest
from ghost_ray.model import Model
from ghost_ray.refit.drift import drift
from ghost_ray.refit.gates import evaluate_gates
from ghost_ray.refit.growth import LISTING
from ghost_ray.refit.inputs import Inputs, changed_parts, read_inputs
from ghost_ray.refit.log import Log
from ghost_ray.refit.stages import STORES, Stages
from ghost_ray.refit_config import RefitConfig
from ghost_ray.registry import AnsweredGate, Pointer, Summary, VersionManifest
from ghost_ray.registry.commands import remove_old

# Two that start at the same moment step back from each other on an object store; this long one of them tries again.
_LOCK_SECONDS = 5.0


def run(config: RefitConfig) -> dict[str, Any]:
    """Bring the registry up to date; returns what was done.

    Raises
    ------
    GateFailed
        Where a version was made and a gate refused it; the current one stays.
    Busy
        Where another refit is at work on the same registry.
    """
    log = Log()
    try:
        attempt = registry.Attempt(config.registry, job=log.job)
    except OSError as error:
        problem = f"cannot be written: {one_line(error)}"
        raise InputError("--registry", redact(config.registry), problem, "choose a place you may write to") from None
    try:
        result = _run(config, log, attempt)
    except BaseException as error:
        outcome = _outcome(error)
        with contextlib.suppress(OSError):  # what went wrong first is what the user is told
            attempt.end(outcome, reason=one_line(redact(str(error))) or type(error).__name__)
        log.line(outcome, reason=error)
        raise
    attempt.end(result["outcome"], version=result["version"], reason=result.get("reason"))
    log.line(result["outcome"].replace(" ", "_"))
    return result


def _outcome(error: BaseException) -> str:
    if isinstance(error, GateFailed):
        return "refused"
    if isinstance(error, registry.Busy):
        return "busy"
    return "failed" if isinstance(error, Exception) else "stopped"


def _run(config: RefitConfig, log: Log, attempt: registry.Attempt) -> dict[str, Any]:
    inputs = read_inputs(config)
    settled = _settled(config, inputs)
    if settled:
        log.version = settled["version"]
        return settled
    with registry.hold(config.registry, "refit", wait=_LOCK_SECONDS, job=log.job) as lock:
        # Another refit may have ended between the look before and the lock.
        settled = _settled(config, inputs)
        if settled:
            return settled
        made = registry.find_by_fingerprint(config.registry, inputs.fingerprint)
        log.version = made.version if made else registry.new_id(config.registry, inputs.fingerprint)
        attempt.note(version=log.version)
        log.line("changed", parts=",".join(_changed(config.registry, inputs)))
        if made is None:
            made = _make_version(config, inputs, log, lock)
        lock.check()
        changed = _changed(config.registry, inputs)
        try:
            pointer = registry.move(config.registry, lambda pointer: _promotion(config, made, pointer))
        finally:
            _clean_up(config, made)
    return {
        "outcome": "promoted",
        "version": made.version,
        "previous": pointer.previous,
        "changed": changed,
        "summary": made.summary,
        "gates": made.gates,
        "seconds": log.seconds,
    }


def _settled(config: RefitConfig, inputs: Inputs) -> dict[str, Any] | None:
    """The result where there is nothing to do."""
    pointer = registry.current(config.registry)
    if pointer is None:
        return None
    serving = registry.read_version(config.registry, pointer.version)
    if serving.fingerprint == inputs.fingerprint:
        reason = f"up to date: weights, data and settings are those of {pointer.version}"
        return {"outcome": "up to date", "version": pointer.version, "reason": reason}
    if pointer.is_held(inputs.fingerprint):
        held = next(entry.version for entry in pointer.held if entry.fingerprint == inputs.fingerprint)
        reason = (
            f"the version of these weights, data and settings, {held}, was rolled back; {pointer.version} stays "
            f"current until somebody promotes {held}"
        )
        return {"outcome": "held", "version": pointer.version, "reason": reason}
    return None


def _changed(root: str, inputs: Inputs) -> list[str]:
    pointer = registry.current(root)
    before = {} if pointer is None else registry.read_version(root, pointer.version).inputs
    return changed_parts(inputs.parts, before)


def _make_version(config: RefitConfig, inputs: Inputs, log: Log, lock: registry.Lock) -> VersionManifest:
    from ghost_ray.runtime import ray_session

    root = config.registry
    pointer = registry.current(root)
    previous = None if pointer is None else registry.read_version(root, pointer.version)
    with OutputFolder(registry.version_folder(root, log.version), resume=True, field="registry") as output:
        stages = Stages(config, inputs, output.staging, log, previous)
        with ray_session(config):
            summary = stages.run()
            log.figures(summary)
        model = stages.model()
        write_json(
            join(output.staging, "drift.json"),
            drift(log.version, summary, inputs.parts, model, previous, _model_of(root, previous)),
        )
        manifest = VersionManifest(
            **provenance(config),
            network=model.manifest.network,
            data=[part for role in stages.stores for part in stages.store(role).manifest.data],
            rows=model.manifest.rows,
            version=log.version,
            fingerprint=inputs.fingerprint,
            inputs=inputs.parts,
            summary=summary,
            gates=_ask(config, summary, previous),
            previous=previous.version if previous else None,
            stores=stages.stores,
        )
        write_manifest(output.staging, manifest)
        _write_report(output.staging, log)
        lock.check()
        output.publish()
    return manifest


def _model_of(root: str, version: VersionManifest | None) -> Model | None:
    return None if version is None else Model.open(join(registry.version_folder(root, version.version), "model"))


def _ask(config: RefitConfig, summary: Summary, current: VersionManifest | None) -> list[AnsweredGate]:
    old = None if current is None else current.summary
    return [gate.answered() for gate in evaluate_gates(config.gates, summary, old)]


def _write_report(folder: str, log: Log) -> None:
    from ghost_ray.config import ReportConfig
    from ghost_ray.report import run

    with log.stage("report"):
        try:
            page = join(folder, "report.html")
            run(ReportConfig(folders=(folder,), out=page, title=f"GHOST {log.version}", plots=False))
        except Exception as error:  # a page that cannot be drawn is no reason to keep a good version back
            log.line("no_report", reason=error)


def _promotion(config: RefitConfig, made: VersionManifest, pointer: Pointer | None) -> Pointer:
    """The pointer moved to the new version, if the gates let it pass against what is current at this very moment."""
    serving = None if pointer is None else registry.read_version(config.registry, pointer.version)
    gates = _ask(config, made.summary, serving)
    refused = [gate["text"] for gate in gates if not gate["passed"]]
    if refused:
        stays = f"{pointer.version} stays current" if pointer else "there is no current version"
        reason = f"{made.version} is not promoted, {stays}: {'; '.join(refused)}"
        raise GateFailed(
            reason,
            {
                "outcome": "refused",
                "version": made.version,
                "reason": reason,
                "summary": made.summary,
                "gates": gates,
            },
        )
    return registry.promoted(pointer, made.version, "refit")


def _clean_up(config: RefitConfig, made: VersionManifest) -> None:
    """Remove old versions, what killed refits left, and the stores that neither this nor the current version needs."""
    root = config.registry
    remove_old(root, config.keep)
    for name in registry.unfinished(root):
        remove_tree(join(root, registry.VERSIONS, name))
    pointer = registry.current(root)
    serving = made if pointer is None else registry.read_version(root, pointer.version)
    kept = {*made.stores.values(), *serving.stores.values()}
    for name in folders_in(join(root, STORES)):
        if name.removeprefix(".").removesuffix(".partial") not in kept:
            remove_tree(join(root, STORES, name))
    for name in names_in(join(root, STORES)):
        if name.removesuffix(LISTING) not in kept:
            remove_file(join(root, STORES, name))
