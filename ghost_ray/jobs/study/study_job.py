"""The study itself: plan → extract what is missing → fit, audit and evaluate each network → compare."""

from __future__ import annotations

import contextlib
from typing import Any, Literal, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.config.study_settings import StudyConfig
from ghost_ray.errors import GateFailed, GhostRayError, InputError, one_line, redact
from ghost_ray.files import (
    MANIFEST,
    folders_in,
    join,
    kind_of,
    names_in,
    remove_file,
    remove_tree,
    resolve,
    write_bytes,
    write_json,
)
from ghost_ray.files.manifest import Manifest, Network, provenance, write_manifest
from ghost_ray.jobs.evaluate import named_methods
from ghost_ray.jobs.study.collect import Collected, collect, make_study
from ghost_ray.jobs.study.network_jobs import NetworkJobs
from ghost_ray.jobs.study.study_plan import WORK, DataSet, StudyPlan, plan_study, used_data
from ghost_ray.model import Model
from ghost_ray.progress import say
from ghost_ray.registry.locks import hold
from ghost_ray.report.study import study_page, study_tables
from ghost_ray.report.study.study_findings import Failed, Study

RESULTS_SCHEMA = pa.schema(
    [
        ("network", pa.string()),
        ("unknown", pa.string()),
        ("method", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("std", pa.float64()),
    ]
)
_MARK = "study.json"


class StudyManifest(Manifest):
    """Manifest of a study; ``network`` is the first of ``networks``, ``rows`` counts the cells of results.parquet."""

    kind: Literal["study"] = "study"
    networks: dict[str, Network]
    failed: dict[str, str]


class StudyResult(TypedDict):
    """What ``study`` returns."""

    out: str
    report: str
    study: Study


def run(config: StudyConfig) -> StudyResult | StudyPlan:
    """Do what is missing of a study and write its results; with ``plan``, only say what would be done.

    Raises
    ------
    InputError
        Before anything runs, for settings or images that cannot work.
    GateFailed
        Where a network could not be finished; the others are, and the results are theirs.
    """
    methods = list(named_methods(config.methods, config.seed))
    return plan_study(config, methods) if config.plan else run_study(config)


def run_study(config: StudyConfig) -> StudyResult:
    """`run` without a plan."""
    data = used_data(config)
    _claim(config.out)
    with hold(join(config.out, WORK), "study"):
        return _run(config, data)


def _run(config: StudyConfig, data: dict[str, DataSet]) -> StudyResult:
    networks = {name: NetworkJobs(config, name, data) for name in config.networks}
    failed: dict[str, str] = {}
    _extract(config, networks, failed)
    collected: list[Collected] = []
    for name, jobs in networks.items():
        if name not in failed:
            with _answering_for(name, failed):
                jobs.conclude()
                collected.append(collect(jobs))
    shown: list[Failed] = [{"network": name, "reason": reason} for name, reason in failed.items()]
    lost = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
    if not collected:
        raise GateFailed(f"no network could be finished: {lost}")
    result = _write(config, make_study(config, collected, shown), networks)
    if failed:
        raise GateFailed(f"not finished: {lost}; the others are, and the same command resumes", result)
    return result


def _claim(out: str) -> None:
    """Refuse a folder that holds something else."""
    filled = bool(names_in(out) or folders_in(out))
    if filled and kind_of(join(out, WORK, _MARK)) != "file":
        raise InputError("out", redact(out), "exists and is no study", "choose a new folder")
    write_json(join(out, WORK, _MARK), {"format": "ghost_ray", "kind": "study"})


@contextlib.contextmanager
def _answering_for(network: str, failed: dict[str, str]) -> Any:
    """Note what went wrong with a network, so that the others go on."""
    try:
        yield
    except GhostRayError as error:
        failed[network] = one_line(error)
    except OSError as error:
        failed[network] = one_line(redact(str(error)))
    if network in failed:
        say(f"study: {network} failed: {failed[network]}")


def _extract(config: StudyConfig, networks: dict[str, NetworkJobs], failed: dict[str, str]) -> None:
    left: dict[str, list[str]] = {}
    for name, jobs in networks.items():
        with _answering_for(name, failed):
            left[name] = jobs.locate()
    if not any(left.values()):
        return
    from ghost_ray.cluster import named_cluster

    with named_cluster(config):
        for name, roles in left.items():
            with _answering_for(name, failed):
                for role in roles:
                    networks[name].extract(role)


def _write(config: StudyConfig, study: Study, networks: dict[str, NetworkJobs]) -> StudyResult:
    """The files of the study; until the manifest is there again, it is not whole."""
    remove_file(join(config.out, MANIFEST))
    filesystem, path = resolve(join(config.out, "results.parquet"))
    pq.write_table(pa.Table.from_pylist(study["results"], RESULTS_SCHEMA), path, filesystem=filesystem)
    write_json(join(config.out, "results.json"), study)
    remove_tree(join(config.out, "tables"))
    for name, text in study_tables.files_of(study).items():
        write_bytes(join(config.out, "tables", name), text.encode())
    report = study_page.write_page(config.out, study, plots=config.plots)
    made = {n["name"]: Model.open(join(networks[n["name"]].folder, "model")).manifest for n in study["networks"]}
    manifest = StudyManifest(
        **provenance(config),
        network=next(iter(made.values())).network,
        networks={name: model.network for name, model in made.items()},
        data=[part for model in made.values() for part in model.data],
        rows=len(study["results"]),
        failed={entry["network"]: entry["reason"] for entry in study["failed"]},
    )
    write_manifest(config.out, manifest)
    return {"out": config.out, "report": report, "study": study}
