"""``demo``: everything on real images, offline, with the same functions that process a user's own data."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypedDict

from ghost_ray.cluster import named_cluster
from ghost_ray.config import AuditConfig, DemoConfig, EvaluateConfig, ExtractConfig, FitConfig, ReportConfig
from ghost_ray.errors import InputError
from ghost_ray.files import OutputFolder, is_local
from ghost_ray.files.manifest import Data, Manifest, Network, provenance, write_manifest
from ghost_ray.progress import say

if TYPE_CHECKING:
    from ghost_ray.jobs.audit.audit_job import AuditResult
    from ghost_ray.jobs.evaluate.findings import EvaluateResult
    from ghost_ray.jobs.extract.job import ExtractResult
    from ghost_ray.jobs.fit import FitResult
    from ghost_ray.jobs.study.study_job import StudyResult

_UNFINISHED = ".unfinished"
NETWORK = "ghost_ray.demo.digits:network"
UNKNOWN = "digits-6-9"


class DemoManifest(Manifest):
    """Manifest of a finished demo."""

    kind: Literal["demo"] = "demo"


class JobResults(TypedDict):
    """What each job of the demo returned."""

    extract: dict[str, ExtractResult]  # by part of the data
    fit: FitResult
    audit: AuditResult
    evaluate: EvaluateResult
    study: StudyResult


class DemoResult(JobResults):
    """What ``demo`` returns."""

    out: str
    report: str


def run(config: DemoConfig) -> DemoResult:
    """Run extract, fit, audit, evaluate, study and report on handwritten digits; returns what each of them returned."""
    # Imported here, not above: the jobs import Ray, and a wrong --out must be reported at once.
    from ghost_ray import report
    from ghost_ray.demo import digits
    from ghost_ray.jobs import audit, evaluate, extract, fit

    evaluate.named_methods(config.methods)  # a wrong method must be reported before a minute of work
    with _folder(config) as out:
        images, weights = os.path.join(out, "images"), os.path.join(out, "network", "weights.safetensors")
        counts = digits.write_images(images)
        say("demo: " + ", ".join(f"{count} {part} images" for part, count in counts.items()) + f" in {images}")
        early = os.path.join(out, "network", "early.safetensors")
        digits.train(images, weights, early)
        stores = {part: os.path.join(out, "stores", part) for part in counts}
        model, audited = os.path.join(out, "model"), os.path.join(out, "audit")
        evaluated = os.path.join(out, "evaluation")
        with named_cluster(config):
            extracted = {
                part: extract.run(
                    ExtractConfig(
                        data=os.path.join(images, part),
                        model=NETWORK,
                        weights=weights,
                        unknown=part == "unknown",
                        out=store,
                    )
                )
                for part, store in stores.items()
            }
            results: JobResults = {
                "extract": extracted,
                "fit": fit.run(FitConfig(store=stores["train"], out=model)),
                "audit": audit.run(AuditConfig(store=stores["train"], out=audited)),
                "evaluate": evaluate.run(
                    EvaluateConfig(
                        fit=stores["train"],
                        known=stores["test"],
                        unknown={UNKNOWN: stores["unknown"]},
                        methods=config.methods,
                        out=evaluated,
                    )
                ),
                "study": _study(config, out, images, stores, early),
            }
        page, shown = os.path.join(out, "report.html"), (audited, evaluated, model, os.path.join(out, "stores"))
        report.run(ReportConfig(folders=shown, out=page, title="GHOST on handwritten digits", plots=False))
        network = Network(
            name=f"{digits.ARCHITECTURE} (demo)",
            classes=extracted["train"]["classes"],
            dimensions=extracted["train"]["dimensions"],
        )
        manifest = DemoManifest(
            **provenance(config),
            network=network,
            data=[Data(uri="sklearn.datasets.load_digits", kind="bundled")],
            rows=sum(counts.values()),
        )
        write_manifest(out, manifest)
    return {**results, "out": config.out, "report": os.path.join(config.out, "report.html")}


def _study(config: DemoConfig, out: str, images: str, stores: dict[str, str], early: str) -> StudyResult:
    """The network and the same network after a few epochs: the first from its stores, the other from images."""
    from ghost_ray.config.study_settings import StudyConfig
    from ghost_ray.jobs.study.study_job import run_study

    settings = {
        "out": os.path.join(out, "study"),
        "networks": {
            "trained": {
                "stores": {"fit": stores["train"], "known": stores["test"], "unknown": {UNKNOWN: stores["unknown"]}}
            },
            "early": {"model": NETWORK, "weights": early},
        },
        "fit": {"data": os.path.join(images, "train")},
        "known": {"data": os.path.join(images, "test")},
        "unknown": {UNKNOWN: {"data": os.path.join(images, "unknown")}},
        "methods": config.methods,
        "plots": False,
    }
    return run_study(StudyConfig.model_validate(settings))


@contextlib.contextmanager
def _folder(config: DemoConfig) -> Iterator[str]:
    """The demo's folder: an unfinished one is cleared, a finished one is kept until the new one is complete."""
    if not is_local(config.out):
        raise InputError("out", config.out, "the demo writes to local folders only", "for example ghost-demo")
    out = os.path.abspath(os.path.expanduser(config.out))
    aside = os.path.join(os.path.dirname(out), f".{os.path.basename(out)}.replaced")
    if os.path.exists(os.path.join(out, _UNFINISHED)):
        shutil.rmtree(out)
        if os.path.isdir(aside):
            os.rename(aside, out)
    OutputFolder(config.out, kind="demo", overwrite=config.overwrite)
    replacing = os.path.isdir(out)
    if replacing:
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(out, aside)
    try:
        os.makedirs(out)
        with open(os.path.join(out, _UNFINISHED), "w", encoding="utf-8") as mark:
            mark.write("A demo is being made here, or was interrupted.\n")
        yield out
        os.unlink(os.path.join(out, _UNFINISHED))
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        if replacing:
            os.rename(aside, out)
        raise
    shutil.rmtree(aside, ignore_errors=True)
