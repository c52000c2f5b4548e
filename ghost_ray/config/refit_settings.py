"""Settings of ``refit``, ``registry``, ``status`` and ``verify``; light, so that ``--help`` answers at once."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ghost_ray.config.fields import Duration, Fraction, Metavar, Name, Place, Positional, Words
from ghost_ray.config.settings import DEFAULT_METHODS, JobConfig, NetworkConfig, RayJobConfig, SourceConfig


class NetworkSection(JobConfig, NetworkConfig):
    """Which network, with the options of ``extract``."""


class DataSection(JobConfig, SourceConfig):
    """Images that belong to no class, with the options of ``extract``."""

    data: Annotated[str, Place()] = Field(min_length=1)


class LabelledSection(DataSection):
    """Labelled images."""

    classes: Annotated[str | None, Place(shared=False)] = None  # class name → index of the head
    restrict: bool = False  # narrow the head to the classes present


class AuditSection(JobConfig):
    """Options of ``audit``."""

    alpha: float = Field(0.05, gt=0, lt=1)
    family: Literal["all", "class"] = "all"
    max_n: int = Field(5000, ge=3, le=5000)
    seed: int = Field(0, ge=0)


class EvaluateSection(JobConfig):
    """Options of ``evaluate``."""

    methods: Words = Field(DEFAULT_METHODS, min_length=1)
    draws: int = Field(10, ge=2, le=1000)
    draw_size: int = Field(1000, ge=10)
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _has_ghost(self) -> EvaluateSection:
        if not {"ghost", "all"} & set(self.methods):
            raise ValueError("methods must include ghost: the gates ask for its AUOSCR")
        return self


class GatesSection(JobConfig):
    """What a version must fulfil to be promoted; a gate that is set to null is not checked."""

    max_rejected_fraction: Fraction | None = 0.1  # of the normality tests; the paper's worst network has 0.083
    max_accuracy_drop: Fraction | None = 0.01  # against the current version, in absolute terms
    max_auoscr_drop: Fraction | None = 0.01  # the same, for every unknown set both versions were evaluated on
    max_classes_without_gaussian: int | None = Field(0, ge=0)
    min_accuracy: Fraction | None = None  # whatever the current version has: many small drops add up
    min_auoscr: Fraction | None = None  # the same, on every unknown set


class RefitConfig(RayJobConfig):
    """Settings of ``refit``."""

    registry: Annotated[str, Metavar("ROOT"), Place(written=True)] = Field(
        description="Folder of the versions, local or on an object store.", min_length=1
    )
    network: NetworkSection
    fit: LabelledSection
    known: LabelledSection | None = None
    unknown: dict[Name, DataSection] = {}
    audit: AuditSection = Field(default_factory=lambda: AuditSection.model_validate({}))
    evaluate: EvaluateSection = Field(default_factory=lambda: EvaluateSection.model_validate({}))
    accept_known: Fraction | None = Field(
        None, description="Store the threshold that keeps this share of the images under `known`."
    )
    gates: GatesSection = Field(default_factory=lambda: GatesSection.model_validate({}))
    keep: int = Field(5, ge=1, description="Number of versions to keep, beside the current and the previous one.")
    keep_weights: bool = Field(False, description="Keep a copy of the network's weights beside each version.")
    strict: Literal["never", "minor", "any"] = Field(
        "minor", description="Which version changes of torch or timm make the refit compute everything again."
    )
    plan: bool = Field(False, description="Only print what would be computed again, and why.")

    @model_validator(mode="after")
    def _consistent(self) -> RefitConfig:
        if self.known is None and (self.unknown or self.accept_known is not None):
            raise ValueError("`unknown` and `accept_known` need labelled test images under `known`")
        if self.gates.min_auoscr is not None and not self.unknown:
            raise ValueError("the gate `min_auoscr` needs images under `unknown`")
        if self.keep_weights and self.network.weights is None:
            raise ValueError("`keep_weights` needs a file under `weights` of `network`")
        return self


class RegistryConfig(JobConfig):
    """Settings of ``registry list``."""

    root: Annotated[str, Positional(), Metavar("ROOT")] = Field(description="Folder of the registry.", min_length=1)


class ShowConfig(RegistryConfig):
    """Settings of ``registry show``."""

    version: Annotated[str, Positional(), Metavar("VERSION")] = Field(
        "", description="Id, label, number or beginning of an id; default: the current version."
    )


class RollbackConfig(RegistryConfig):
    """Settings of ``registry rollback``."""

    reason: str | None = Field(None, description="Why, for the history that `registry show` prints.", max_length=1000)


class PromoteConfig(RollbackConfig):
    """Settings of ``registry promote``."""

    version: Annotated[str, Positional(), Metavar("VERSION")] = Field(
        description="Id, label, number or beginning of an id.", min_length=1
    )


class LabelConfig(RegistryConfig):
    """Settings of ``registry label``."""

    version: Annotated[str, Positional(), Metavar("VERSION")] = Field(
        description="Id, label, number or beginning of an id.", min_length=1
    )
    label: Annotated[Name, Positional(), Metavar("LABEL")] = Field(
        description="A name that begins with a letter.", pattern="^[A-Za-z]"
    )
    remove: bool = Field(False, description="Take the label from the version.")


class PruneConfig(RegistryConfig):
    """Settings of ``registry prune``."""

    keep: int = Field(
        5, ge=0, description="Number of newest versions to keep, beside the current and the previous one."
    )
    dry_run: bool = Field(False, description="Only print what would be removed.")


class StatusConfig(RegistryConfig):
    """Settings of ``status``."""

    attempts: int = Field(5, ge=1, le=50, description="How many of the last refits are shown.")
    check: bool = Field(
        False,
        description="Exit with code 1 if the current version is stale, held or damaged, or the last refit failed.",
    )
    max_age: Annotated[Duration | None, Metavar("TIME")] = Field(
        None, description="With --check: how long ago the current version may have been confirmed, as in 48h or 7d."
    )
    metrics: Annotated[str | None, Metavar("FILE.prom")] = Field(
        None, description="Also write the state as metrics, for the textfile collector of Prometheus' node exporter."
    )

    @model_validator(mode="after")
    def _consistent(self) -> StatusConfig:
        if self.max_age is not None and not self.check:
            raise ValueError("`max_age` needs `check`")
        return self


class VerifyConfig(JobConfig):
    """Settings of ``verify``."""

    place: Annotated[str, Positional(), Metavar("PLACE")] = Field(
        description="A store, model, audit, evaluation, version or registry, or a folder of results.", min_length=1
    )
    strict: bool = Field(
        False,
        description="Also refuse results whose manifest is not sealed or lists no files, and files that no manifest "
        "lists.",
    )
