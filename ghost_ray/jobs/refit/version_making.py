"""Making a version: the stages, the drift, the results of the gates, the page; complete or not at all."""

from __future__ import annotations

import contextlib

from pyarrow import fs

from ghost_ray import registry
from ghost_ray.config.refit_settings import RefitConfig
from ghost_ray.errors import InputError, JobFailed, redact
from ghost_ray.files import (
    MANIFEST,
    OutputFolder,
    is_local,
    join,
    kind_of,
    names_in,
    reaching,
    remove_file,
    resolve,
    write_json,
)
from ghost_ray.files.download_cache import local_copy
from ghost_ray.files.file_types import checkpoint_kind
from ghost_ray.files.manifest import provenance, write_manifest
from ghost_ray.jobs.fingerprints import weights_digest
from ghost_ray.jobs.refit.drift import drift
from ghost_ray.jobs.refit.gates import evaluate_gates
from ghost_ray.jobs.refit.inputs import Inputs
from ghost_ray.jobs.refit.log import Log
from ghost_ray.jobs.refit.planning import steps
from ghost_ray.jobs.refit.stages import Stages
from ghost_ray.model import Model
from ghost_ray.registry import AnsweredGate, Pointer, Summary, VersionManifest


def reference(root: str, pointer: Pointer | None) -> VersionManifest | None:
    """What a new version is compared with: the current one, or the last before it whose manifest can be read."""
    versions = [] if pointer is None else [pointer.version, *pointer.way_back()]
    found = (registry.readable_version(root, version) for version in versions)
    return next((manifest for manifest in found if manifest is not None), None)


def make_version(
    config: RefitConfig, inputs: Inputs, changed: list[str], log: Log, lock: registry.Lock
) -> VersionManifest:
    """Make and publish the version ``log.version``; a killed refit resumes after the finished stages."""
    from ghost_ray.cluster import named_cluster

    root = config.registry
    with reaching(root, "registry"):
        previous = reference(root, registry.current(root))
        for step in steps(config, inputs, changed, previous):
            log.line("plan", what=step["what"], action=step["action"], why=step["why"])
    with OutputFolder(
        registry.version_folder(root, log.version), kind="version", resume=True, field="registry"
    ) as output:
        stages = Stages(config, inputs, output.staging, log, previous)
        with named_cluster(config):
            summary = stages.run()
            log.figures(summary)
        model = stages.model()
        _copy_weights(config, inputs, output.staging)
        write_json(
            join(output.staging, "drift.json"),
            drift(log.version, summary, changed, model, previous, _model_of(root, previous)),
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
            gates=ask(config, summary, previous),
            previous=previous.version if previous else None,
            stores=stages.stores,
            stages=stages.keys,
            weights=place_of_weights(config),
        )
        write_manifest(output.staging, manifest)
        _write_report(output.staging, log)
        # Once more: the page is drawn from the manifest, and the manifest lists the page.
        manifest = write_manifest(output.staging, manifest)
        lock.check()
        _require_free(root, log.version)
        output.publish()
    return manifest


def place_of_weights(config: RefitConfig) -> str | None:
    """Where the network's weights are, without secrets; None for its published ones."""
    place = config.network.weights
    if place is None:
        return None
    return resolve(place)[1] if is_local(place) else redact(place)  # a relative path says nothing to another process


def _copy_weights(config: RefitConfig, inputs: Inputs, folder: str) -> None:
    """Put a copy of the weights into the version, if one is asked for; any other copy is of a refit that was killed."""
    for name in names_in(folder):
        if name.startswith(registry.WEIGHTS):
            remove_file(join(folder, name))
    place = config.network.weights
    if not config.keep_weights or place is None:
        return
    kind = "safetensors" if checkpoint_kind(place) == "safetensors" else "pth"
    with reaching(folder, "registry"):
        there, target = resolve(join(folder, registry.WEIGHTS + kind))
        fs.copy_files(local_copy(place, "weights"), target, fs.LocalFileSystem(), there)
    if weights_digest(config.network, join(config.registry, registry.WORK)) != inputs.weights:
        raise JobFailed(f"the weights {redact(place)} changed while the refit ran — run it again")


def _require_free(root: str, version: str) -> None:
    """A version is never replaced: another refit that took over may have published it."""
    if kind_of(join(registry.version_folder(root, version), MANIFEST)) == "file":
        raise registry.Busy(f"another refit published {version} of {redact(root)}; run it again")


def _model_of(root: str, version: VersionManifest | None) -> Model | None:
    if version is None:
        return None
    with contextlib.suppress(InputError):  # a damaged version is replaced, not compared with
        return Model.open(join(registry.version_folder(root, version.version), "model"))
    return None


def ask(config: RefitConfig, summary: Summary, current: VersionManifest | None) -> list[AnsweredGate]:
    """The gates that apply, answered against the figures of ``current``."""
    old = None if current is None else current.summary
    return [gate.answered() for gate in evaluate_gates(config.gates, summary, old)]


def _write_report(folder: str, log: Log) -> None:
    from ghost_ray.config import ReportConfig
    from ghost_ray.report import run

    with log.stage("report"):
        try:
            page = join(folder, "report.html")
            run(ReportConfig(folders=(folder,), out=page, title=f"GHOST {log.version}", plots=False))
        except Exception as error:  # an error in the page must not block a good version
            log.line("no_report", reason=error)
