"""Settings of ``study``: networks × unknown sets × methods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from ghost_ray.config.fields import Catalogue, Metavar, Name, Place, Words, pairs
from ghost_ray.config.refit_settings import AuditSection, DataSection, LabelledSection, NetworkSection
from ghost_ray.config.settings import EvaluateConfig, JobConfig, RayJobConfig

# Folders of a study that do not belong to a network.
_TAKEN = ("tables", "plots")


class StoresSection(JobConfig):
    """Stores that exist, of one network."""

    fit: Annotated[str | None, Place(shared=False)] = Field(None, min_length=1)
    known: Annotated[str | None, Place(shared=False)] = Field(None, min_length=1)
    unknown: Annotated[dict[Name, str], Place(shared=False)] = {}


class StudyNetwork(NetworkSection):
    """A network with the options of ``extract``, or its existing stores; missing stores are extracted."""

    model: Annotated[str, Metavar("NAME")] = ""
    stores: StoresSection = Field(default_factory=lambda: StoresSection.model_validate({}))

    @model_validator(mode="after")
    def _has_a_source(self) -> StudyNetwork:
        whole = self.stores.fit and self.stores.known and self.stores.unknown
        if not self.model and not whole:
            raise ValueError("names neither a `model` nor `stores` with fit, known and unknown")
        return self


class StudyConfig(RayJobConfig):
    """Settings of ``study``."""

    out: Annotated[str, Metavar("DIR"), Place(written=True, shared=False)] = Field(
        description="Folder of the study, local or on an object store. Existing results in it are used.", min_length=1
    )
    networks: dict[Name, StudyNetwork] = Field(min_length=1)
    fit: LabelledSection | None = None
    known: LabelledSection | None = None
    unknown: dict[Name, DataSection] = {}
    groups: Annotated[dict[Name, Words], BeforeValidator(pairs), Metavar("NAME=A,B")] = Field(
        {}, description="Unknown sets to average under one name (near=ssb_hard,ninco). May be repeated."
    )
    methods: Annotated[Words, Metavar("NAMES"), Catalogue("methods")] = Field(
        EvaluateConfig.model_fields["methods"].default,
        description="Methods, separated by commas, or `all`, as for `evaluate`. Listed below.",
        min_length=1,
    )
    audit: AuditSection = Field(default_factory=lambda: AuditSection.model_validate({}))
    draws: int = Field(10, ge=2, le=1000, description="Number of random draws in the significance tests.")
    draw_size: int = Field(1000, ge=10, description="Knowns and unknowns per draw.")
    seed: int = Field(0, ge=0, description="Seed of all random choices.")
    plots: bool = Field(True, description="Also write every figure as PNG, SVG and PDF into plots/.")
    plan: bool = Field(False, description="Only print what would run and what it needs.")

    def sets_of(self, network: str) -> list[str]:
        """The unknown sets that a network is evaluated on."""
        chosen = self.networks[network]
        return list(dict.fromkeys([*(self.unknown if chosen.model else ()), *chosen.stores.unknown]))

    @property
    def sets(self) -> list[str]:
        """All unknown sets, in the order of the file."""
        return list(dict.fromkeys([*self.unknown, *(name for each in self.networks for name in self.sets_of(each))]))

    @model_validator(mode="after")
    def _consistent(self) -> StudyConfig:
        for problem in self._problems():
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        for name, network in self.networks.items():
            if name in _TAKEN:
                yield f"a network cannot be called {name}: the study has a folder of that name"
            for role in ("fit", "known"):
                if getattr(self, role) is None and getattr(network.stores, role) is None:
                    yield f"`{role}` is needed: the network {name} has no store for it"
            if not self.sets_of(name):
                yield f"`unknown` is needed: the network {name} has no unknown set"
        if "known" in self.sets:
            yield "an unknown set cannot be called known: that is the name of the known set"
        for group, members in self.groups.items():
            if group in self.sets:
                yield f"groups: {group} is the name of an unknown set already"
            if not members or len(set(members)) < len(members):
                yield f"groups: {group} names no set, or one twice"
            for member in members:
                if member not in self.sets:
                    yield f"groups: {group} names {member!r}, which is no unknown set; sets: {', '.join(self.sets)}"
