"""What a version is made from, as digests: the weights, every data set, the settings and the software.

Finding out is cheap, since every scheduled run does it: data is listed and never read, and a weights file whose
bytes were seen before is hashed but not loaded, so that neither Torch nor Ray is imported when nothing changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
from dataclasses import dataclass
from typing import Any

from ghost_ray import __version__
from ghost_ray.errors import InputError, one_line
from ghost_ray.files import join, read_bytes, read_json, redact, write_json
from ghost_ray.refit_config import DataSection, NetworkSection, RefitConfig
from ghost_ray.registry import WORK
from ghost_ray.sources import fingerprint_of

FIT, KNOWN = "fit", "known"
_SEEN = "weights.json"
_MAX_CLASSES_BYTES = 64 << 20
# How fast something runs, and how much may fail, changes no result.
_FREE = {"data", "max_failures"}


@dataclass(frozen=True)
class Inputs:
    """Everything a version depends on."""

    weights: str  # SHA-256 of the network's tensors
    data: dict[str, str]  # "fit", "known", "unknown.NAME" → digest of listing, place and options
    listings: dict[str, str]  # the same names → fingerprint of the listing alone, as stores carry it
    settings: str
    software: str

    @property
    def parts(self) -> dict[str, str]:
        """Each part's digest under the name people are told it by."""
        data = {f"data.{role}": digest for role, digest in self.data.items()}
        return {"weights": self.weights, **data, "settings": self.settings, "software": self.software}

    @property
    def fingerprint(self) -> str:
        """One digest of all parts."""
        return _digest(self.parts)

    def store_name(self, role: str, network: NetworkSection) -> str:
        """The folder of an extracted store; the same for as long as network, data and options are."""
        made_from = [self.weights, network.model, network.precision, network.compile, self.data[role], self.software]
        return f"{role}-{_digest(made_from)[:12]}"


def changed_parts(new: dict[str, str], old: dict[str, str]) -> list[str]:
    """Names of the parts that differ, those that came or went included."""
    return [name for name in {**new, **old} if new.get(name) != old.get(name)]


def read_inputs(config: RefitConfig) -> Inputs:
    """Look at weights, data and settings as they are now.

    Raises
    ------
    InputError
        For a file, a folder or a network that is not there.
    """
    sections = data_sections(config)
    listings = {role: _listing(role, section) for role, section in sections.items()}
    data = {role: _data_digest(section, listings[role]) for role, section in sections.items()}
    if config.fit.restrict:
        # What the head is narrowed to, for every store, is seen in the images the fit rests on.
        data |= {role: _digest([digest, data[FIT]]) for role, digest in data.items() if role != FIT}
    settings = {
        "network": config.network.model_dump(mode="json", include={"model", "precision", "compile"}),
        "audit": config.audit.model_dump(mode="json"),
        "evaluate": config.evaluate.model_dump(mode="json") if config.unknown else None,
        "accept_known": config.accept_known,
    }
    software = {"ghost_ray": __version__, **{name: importlib.metadata.version(name) for name in ("timm", "torch")}}
    return Inputs(_weights(config), data, listings, _digest(settings), _digest(software))


def data_sections(config: RefitConfig) -> dict[str, DataSection]:
    """Every data set of a refit by its role."""
    sections: dict[str, DataSection] = {FIT: config.fit}
    if config.known is not None:
        sections[KNOWN] = config.known
    return sections | {f"unknown.{name}": section for name, section in config.unknown.items()}


def _listing(role: str, section: DataSection) -> str:
    try:
        return fingerprint_of(section.data, section.format, section.root)
    except InputError as error:
        raise InputError(f"{role}.{error.field.lstrip('-')}", error.value, error.problem, error.hint) from None


def _data_digest(section: DataSection, listing: str) -> str:
    options = {name: value for name, value in section.model_dump(mode="json").items() if name not in _FREE}
    classes = options.get("classes")
    if classes:
        try:
            options["classes"] = hashlib.sha256(read_bytes(classes, limit=_MAX_CLASSES_BYTES)).hexdigest()
        except (OSError, ValueError) as error:
            raise InputError("classes", classes, f"cannot be read: {one_line(error)}", "name a file") from None
    return _digest({"uri": redact(section.data), "listing": listing, **options})


def _weights(config: RefitConfig) -> str:
    """The network's fingerprint; known from an earlier run where the file has the same bytes."""
    network = config.network
    if network.weights is None:
        return _load_fingerprint(network)
    try:
        with open(network.weights, "rb") as handle:
            file = hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        problem = f"cannot be read: {one_line(error.strerror)}"
        raise InputError("network.weights", network.weights, problem, "name a local file") from None
    seen = _seen(config.registry)
    key = f"{network.model} {file}"
    if key not in seen:
        seen[key] = _load_fingerprint(network)
        with contextlib.suppress(OSError):  # only a convenience of the next run
            write_json(join(config.registry, WORK, _SEEN), seen)
    return seen[key]


def _seen(root: str) -> dict[str, str]:
    """``model file-hash`` → fingerprint of weights files loaded before."""
    try:
        content = read_json(join(root, WORK, _SEEN))
    except (OSError, ValueError):
        return {}
    entries = content.items() if isinstance(content, dict) else ()
    return {key: value for key, value in entries if isinstance(value, str) and len(value) == 64}


def _load_fingerprint(network: NetworkSection) -> str:
    from ghost_ray.backbone import load_backbone

    return load_backbone(network.model, network.weights, device="cpu").weights_sha256


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
