"""The commands: for each its settings, the function that does the work, and an example."""

from __future__ import annotations

from dataclasses import dataclass

from ghost_ray import config


@dataclass(frozen=True)
class Command:
    """One job as users see it. ``run`` is ``module:function``, imported when the command is used."""

    settings: type[config.JobConfig]
    run: str
    summary: str
    text: str
    example: str


COMMANDS: dict[str, Command] = {
    "demo": Command(
        config.DemoConfig,
        "ghost_ray.demo:run",
        "See everything work, offline: images to report in about a minute.",
        "Trains a small network on handwritten digits 0–5, keeps 6–9 as unknowns, and runs extract, fit, audit, "
        "evaluate and report on them, the very functions your own data goes through.",
        "ghost-ray demo --out ghost-demo",
    ),
    "extract": Command(
        config.ExtractConfig,
        "ghost_ray.extract:run",
        "Embed images with a network into a store.",
        "Reads images of any layout, local or on an object store, embeds them on a pool of actors and writes a store. "
        "Killed at any moment, the same command goes on where it was.",
        "ghost-ray extract --data imagenet/train --model vit-b-16 --out stores/train",
    ),
    "import": Command(
        config.ImportConfig,
        "ghost_ray.importing:run",
        "Make a store of embeddings and logits in .npy files.",
        "Takes arrays computed elsewhere, such as the ones the paper's authors publish, so that fit, audit and "
        "evaluate run without any image.",
        "ghost-ray import --features train_FV.npy --logits train_logits.npy --out stores/train",
    ),
    "fit": Command(
        config.FitConfig,
        "ghost_ray.fit:run",
        "Fit a Gaussian for every class and dimension of a store.",
        "One pass over the correctly classified rows; the result does not depend on the number of workers.",
        "ghost-ray fit stores/train --out models/ghost",
    ),
    "audit": Command(
        config.AuditConfig,
        "ghost_ray.audit:run",
        "Test every class and dimension for normality: may GHOST be adopted for this network?",
        "Shapiro–Wilk for each class and dimension, Holm's correction over the whole family, and a verdict beside "
        "the paper's four networks.",
        "ghost-ray audit stores/train --out audits/train --fail-above 0.05",
    ),
    "score": Command(
        config.ScoreConfig,
        "ghost_ray.score:run",
        "Score a store or images with a model and accept or reject each.",
        "Writes key, pred, score and accepted. The threshold is given, chosen from known or unknown samples, or the "
        "one stored with the model before.",
        "ghost-ray score models/ghost --store stores/test --accept-known 0.95 --known stores/val --out scores.parquet",
    ),
    "evaluate": Command(
        config.EvaluateConfig,
        "ghost_ray.evaluate:run",
        "Compare GHOST with its rivals on known and unknown test sets.",
        "OSCR, AUROC, FPR95, F@C95, fairness and significance as in the paper, for any number of unknown sets.",
        "ghost-ray evaluate --fit stores/train --known stores/val --unknown ninco=stores/ninco --out eval",
    ),
    "report": Command(
        config.ReportConfig,
        "ghost_ray.report:run",
        "One self-contained HTML page of audits, evaluations, models and versions.",
        "Shows what is in the folders named and says what is missing.",
        "ghost-ray report audits/train eval --out report.html",
    ),
}
