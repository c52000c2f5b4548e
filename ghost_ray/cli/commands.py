"""The commands: for each its settings, the function that does the work, and an example."""

from __future__ import annotations

from dataclasses import dataclass

from ghost_ray import config, refit_config


@dataclass(frozen=True)
class Command:
    """One job as users see it. ``run`` is ``module:function``, imported when the command is used.

    A name of two words is a command in a group: ``registry list``.
    """

    settings: type[config.JobConfig]
    run: str
    summary: str
    text: str
    example: str


GROUPS = {"registry": "Versions of a model: look at them, promote one, go back, clean up."}

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
        "ghost-ray import --features train_FV.npy --logits train_logits.npy \\\n      --out stores/train",
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
        "ghost-ray score models/ghost --store stores/test --accept-known 0.95 \\\n"
        "      --known stores/val --out scores.parquet",
    ),
    "evaluate": Command(
        config.EvaluateConfig,
        "ghost_ray.evaluate:run",
        "Compare GHOST with its rivals on known and unknown test sets.",
        "OSCR, AUROC, FPR95, F@C95, fairness and significance as in the paper, for any number of unknown sets.",
        "ghost-ray evaluate --fit stores/train --known stores/val \\\n      --unknown ninco=stores/ninco --out eval",
    ),
    "report": Command(
        config.ReportConfig,
        "ghost_ray.report:run",
        "One self-contained HTML page of audits, evaluations, models and versions.",
        "Shows what is in the folders named and says what is missing.",
        "ghost-ray report audits/train eval --out report.html",
    ),
    "refit": Command(
        refit_config.RefitConfig,
        "ghost_ray.refit:run",
        "Bring a registry up to date when the network or the data changed; made for a schedule.",
        "Compares the weights, the data and the settings with those of the current version. Nothing changed: says so "
        "and ends in seconds. Otherwise extract, fit, audit, evaluate, gates, and a new version is promoted, or the "
        "current one kept with exit 1. Network, data and gates stand in the file; docs/operations.md shows one.",
        "ghost-ray refit --config refit.yaml",
    ),
    "registry list": Command(
        refit_config.RegistryConfig,
        "ghost_ray.registry.commands:list_versions",
        "All versions of a registry, newest first.",
        "Shows for each whether it is current, held after a rollback, or was refused by a gate.",
        "ghost-ray registry list registry",
    ),
    "registry show": Command(
        refit_config.ShowConfig,
        "ghost_ray.registry.commands:show_version",
        "One version: its network, data, gates and drift.",
        "Without VERSION, the current one.",
        "ghost-ray registry show registry 7",
    ),
    "registry promote": Command(
        refit_config.PromoteConfig,
        "ghost_ray.registry.commands:promote",
        "Make a version the current one, whatever its gates said.",
        "Readers see the old or the new version at every moment.",
        "ghost-ray registry promote registry 7",
    ),
    "registry rollback": Command(
        refit_config.RegistryConfig,
        "ghost_ray.registry.commands:rollback",
        "Return to the version before the current one.",
        "The version left is held: no refit promotes the same inputs again until a person does.",
        "ghost-ray registry rollback registry",
    ),
    "registry prune": Command(
        refit_config.PruneConfig,
        "ghost_ray.registry.commands:prune",
        "Remove old versions and what interrupted refits left.",
        "The current and the previous version always stay.",
        "ghost-ray registry prune registry --keep 5",
    ),
    "status": Command(
        refit_config.StatusConfig,
        "ghost_ray.registry.commands:status",
        "Which version serves, since when, and how the last refits ended.",
        "Reads a few small files; runs beside anything.",
        "ghost-ray status registry",
    ),
}
