"""The commands: for each its settings, the function that does the work, and an example."""

from __future__ import annotations

from dataclasses import dataclass

from ghost_ray import config
from ghost_ray.config import refit_settings, study_settings


@dataclass(frozen=True)
class Command:
    """One job as users see it. ``run`` is ``module:function``, imported when the command is used.

    A name of two words is a command in a group: ``registry list``. ``answer``, of the same form, makes the JSON object
    that a scheduled command always prints as its last line.
    """

    settings: type[config.JobConfig]
    run: str
    summary: str
    text: str
    example: str
    answer: str = ""


GROUPS = {"registry": "Versions of a model: list, show, promote, roll back, label, prune."}

COMMANDS: dict[str, Command] = {
    "demo": Command(
        config.DemoConfig,
        "ghost_ray.demo:run",
        "Run everything on bundled images, offline, in a minute or two.",
        "Trains a small network on handwritten digits 0–5, keeps 6–9 as unknowns, and runs extract, fit, audit, "
        "evaluate, study and report on them: the same functions that process your own data.",
        "ghost-ray demo --out ghost-demo",
    ),
    "extract": Command(
        config.ExtractConfig,
        "ghost_ray.jobs.extract:run",
        "Embed images with a network into a store.",
        "Reads images from a disk or an object store, embeds them on a pool of actors and writes a store. If it is "
        "interrupted, run the same command again to resume.",
        "ghost-ray extract --data imagenet/train --model vit-b-16 --out stores/train",
    ),
    "import": Command(
        config.ImportConfig,
        "ghost_ray.jobs.importing:run",
        "Make a store from embeddings and logits in files of arrays.",
        "Takes arrays computed elsewhere, so that fit, audit and evaluate run without images. The paper's authors "
        "publish no arrays; arrays in the layout that their code reads are taken as they are. Reads .npy, .npz, .pt, "
        ".pth, .safetensors, Parquet and CSV, also larger than memory.",
        "ghost-ray import --features train_FV.npy --logits train_logits.npy \\\n      --out stores/train",
    ),
    "fit": Command(
        config.FitConfig,
        "ghost_ray.jobs.fit:run",
        "Fit one Gaussian per class and dimension of a store.",
        "One pass over the correctly classified rows. The result does not depend on the number of workers.",
        "ghost-ray fit stores/train --out models/ghost",
    ),
    "audit": Command(
        config.AuditConfig,
        "ghost_ray.jobs.audit:run",
        "Test every class and dimension for normality: does GHOST suit this network?",
        "Shapiro–Wilk for each class and dimension, Holm's correction over the whole family, and a verdict that "
        "compares the network with the four networks of the paper.",
        "ghost-ray audit stores/train --out audits/train --fail-above 0.05",
    ),
    "score": Command(
        config.ScoreConfig,
        "ghost_ray.jobs.score:run",
        "Score a store or images with a model and accept or reject each.",
        "Writes key, pred, score and accepted. The threshold is given, chosen from known or unknown samples, or "
        "the one already stored with the model. Options of the network and its devices need --data.",
        "ghost-ray score models/ghost --store stores/test --accept-known 0.95 \\\n"
        "      --known stores/val --out scores.parquet",
    ),
    "evaluate": Command(
        config.EvaluateConfig,
        "ghost_ray.jobs.evaluate:run",
        "Compare GHOST with its rivals on known and unknown test sets.",
        "OSCR, AUROC, FPR95, F@C95, fairness and significance as in the paper, for any number of unknown sets.",
        "ghost-ray evaluate --fit stores/train --known stores/val \\\n      --unknown ninco=stores/ninco --out eval",
    ),
    "report": Command(
        config.ReportConfig,
        "ghost_ray.report:run",
        "One self-contained HTML page of audits, evaluations, models and versions.",
        "Shows what the folders hold and says what is missing.",
        "ghost-ray report audits/train eval --out report.html",
    ),
    "study": Command(
        study_settings.StudyConfig,
        "ghost_ray.jobs.study:run",
        "Compare several networks on several unknown sets: the paper's results section in one command.",
        "Extracts what is missing, fits, audits and evaluates each network, and writes one table, the paper's tables, "
        "and a page. What is done already is kept: run the same command again after an interruption, or with one more "
        "network, set or method. docs/study.md describes FILE.",
        "ghost-ray study --config study.yaml --plan",
    ),
    "refit": Command(
        refit_settings.RefitConfig,
        "ghost_ray.jobs.refit:run",
        "Bring a registry up to date when the network or the data changed. Made for schedules.",
        "Compares the weights, the data and the settings with those of the current version. If nothing changed, it "
        "says so and ends in seconds. Otherwise it extracts, fits, audits, evaluates and checks the gates. Then it "
        "promotes a new version, or keeps the current one and exits with code 1. The last line on stdout is a JSON "
        "object with the outcome, the exit code and what to do. docs/operations.md describes FILE.",
        "ghost-ray refit --config refit.yaml",
        "ghost_ray.jobs.refit.results:answer",
    ),
    "registry list": Command(
        refit_settings.RegistryConfig,
        "ghost_ray.registry.looking:list_versions",
        "All versions of a registry, newest first.",
        "Shows which one is current, which are held after a rollback, which were refused by a gate, and which are "
        "damaged.",
        "ghost-ray registry list registry",
    ),
    "registry show": Command(
        refit_settings.ShowConfig,
        "ghost_ray.registry.looking:show_version",
        "One version: its network, data, gates and drift, and who made it current.",
        "Without VERSION, the current one.",
        "ghost-ray registry show registry 7",
    ),
    "registry promote": Command(
        refit_settings.PromoteConfig,
        "ghost_ray.registry.operations:promote",
        "Make a version the current one, whatever its gates said.",
        "At every moment, readers see either the old or the new version. A damaged version is refused; if it was held, "
        "it no longer is, and a refit makes it again.",
        'ghost-ray registry promote registry 7 --reason "checked by hand"',
    ),
    "registry rollback": Command(
        refit_settings.RollbackConfig,
        "ghost_ray.registry.operations:rollback",
        "Return to the version before the current one.",
        "The version that was left is held: refits do not promote the same inputs again, only a person does. If it is "
        "damaged it is not held, and a refit makes it again. A damaged version is not returned to.",
        "ghost-ray registry rollback registry",
    ),
    "registry label": Command(
        refit_settings.LabelConfig,
        "ghost_ray.registry.operations:label",
        "Give a version a name, such as canary.",
        "A label stands for one version and can be moved to another. A labelled version is not pruned. "
        "ghost_ray.load(root, version='canary') follows it.",
        "ghost-ray registry label registry 7 canary",
    ),
    "registry prune": Command(
        refit_settings.PruneConfig,
        "ghost_ray.registry.operations:prune",
        "Remove old versions and the remains of interrupted refits.",
        "The current and the previous version and those with a label are never removed.",
        "ghost-ray registry prune registry --keep 5",
    ),
    "status": Command(
        refit_settings.StatusConfig,
        "ghost_ray.registry.status:status",
        "Show which version serves, since when, and how the last refits ended.",
        "Reads the current version in full and says whether it is as it was written. Can run at any time.",
        "ghost-ray status registry --check --max-age 48h",
    ),
    "verify": Command(
        refit_settings.VerifyConfig,
        "ghost_ray.registry.verifying:verify",
        "Check every file of a result or a registry against what was written.",
        "Reads all files that a manifest names and compares size and SHA-256. Each damaged file is named, and the exit "
        "code is then 2.",
        "ghost-ray verify stores/train",
    ),
}
