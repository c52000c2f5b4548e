"""Digests of the inputs of a version: the weights, every data set, the settings and the software."""

from __future__ import annotations

from dataclasses import dataclass

from ghost_ray.config.limits import EMBEDDING_OPTIONS
from ghost_ray.config.refit_settings import DataSection, NetworkSection, RefitConfig
from ghost_ray.files import join
from ghost_ray.files.manifest import RESULT_VERSIONS
from ghost_ray.jobs.evaluate import named_methods
from ghost_ray.jobs.fingerprints import (
    Strict,
    classes_digest,
    data_digest,
    digest,
    installed_libraries,
    labels_digest,
    listing_of,
    named,
    same_libraries,
    store_name,
    weights_digest,
)
from ghost_ray.registry import WORK, VersionManifest

FIT, KNOWN = "fit", "known"


@dataclass(frozen=True)
class Inputs:
    """Everything a version depends on."""

    weights: str  # SHA-256 of the network's tensors
    data: dict[str, str]  # "fit", "known", "unknown.NAME" → digest of listing, place and options
    listings: dict[str, str]  # the same names → fingerprint of the listing alone, as stores carry it
    settings: str
    software: dict[str, str]  # versions, compared as strictly as the settings say
    strict: Strict

    @property
    def parts(self) -> dict[str, str]:
        """Each part under the name that messages use."""
        return {**self._compared, "software": ", ".join(f"{name} {version}" for name, version in self.software.items())}

    @property
    def _compared(self) -> dict[str, str]:
        """The parts of which any difference counts."""
        data = {f"data.{role}": found for role, found in self.data.items()}
        return {"weights": self.weights, **data, "settings": self.settings, "results": _RESULTS}

    @property
    def fingerprint(self) -> str:
        """One digest of all parts except the software, which is compared and not hashed."""
        return digest(self._compared)

    def changed_since(self, version: VersionManifest) -> list[str]:
        """Names of the parts that differ from those a version was made from, those that came or went included."""
        old = {"results": _FIRST_RESULTS, **version.inputs}
        old.pop("software", None)
        new = self._compared
        changed = [name for name in {**new, **old} if new.get(name) != old.get(name)]
        return changed if self.same_software(version.versions) else [*changed, "software"]

    def same_software(self, versions: dict[str, str]) -> bool:
        """Whether a result of these versions of the libraries is still valid."""
        return same_libraries(self.software, versions, self.strict)

    def store_stem(self, role: str, network: NetworkSection) -> str:
        """What the name of an extracted store begins with, for as long as network, data and options are the same."""
        return store_name(role, self.weights, network, self.data[role], str(RESULT_VERSIONS["store"]))

    def store_name(self, role: str, network: NetworkSection) -> str:
        """The folder of a store that the present software extracts."""
        return f"{self.store_stem(role, network)}-{digest(self.software)[:6]}"


def _results(versions: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


_RESULTS = _results(RESULT_VERSIONS)
_FIRST_RESULTS = _results(dict.fromkeys(RESULT_VERSIONS, 1))  # of versions that did not record them yet


def read_inputs(config: RefitConfig) -> Inputs:
    """Look at weights, data and settings as they are now.

    Raises
    ------
    InputError
        For a file, a folder, a network or a method that is not there.
    """
    with named("evaluate"):
        named_methods(config.evaluate.methods)
    work = join(config.registry, WORK)
    listings, data = {}, {}
    for role, section in data_sections(config).items():
        with named(role):
            listings[role] = listing_of(section)
            data[role] = data_digest(section, listings[role])
    if config.fit.restrict:
        with named(FIT):
            # In every store, the head is narrowed to the classes that the fit has images of.
            kept = [labels_digest(config.fit, listings[FIT], work), classes_digest(config.fit.classes)]
        data |= {role: digest([found, kept]) for role, found in data.items() if role != FIT}
    settings = {
        "network": config.network.model_dump(mode="json", include=set(EMBEDDING_OPTIONS)),
        "audit": config.audit.model_dump(mode="json"),
        "evaluate": config.evaluate.model_dump(mode="json") if config.unknown else None,
        "accept_known": config.accept_known,
    }
    with named("network"):
        weights = weights_digest(config.network, work)
    return Inputs(weights, data, listings, digest(settings), installed_libraries(), config.strict)


def data_sections(config: RefitConfig) -> dict[str, DataSection]:
    """Every data set of a refit by its role."""
    sections: dict[str, DataSection] = {FIT: config.fit}
    if config.known is not None:
        sections[KNOWN] = config.known
    return sections | {f"unknown.{name}": section for name, section in config.unknown.items()}
