"""Digests of everything that determines the embeddings of a store: weights, images, options and software.

Finding out is cheap, since every scheduled run does it: data is listed and never read, and a weights file whose
bytes were seen before is hashed but not loaded, so that neither Torch nor Ray is imported when nothing changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from ghost_ray.config.limits import EMBEDDING_OPTIONS
from ghost_ray.config.refit_settings import DataSection, NetworkSection
from ghost_ray.errors import InputError, one_line, redact
from ghost_ray.files import is_local, join, reaching, read_bytes, read_json, write_json
from ghost_ray.files.download_cache import hub_version, version_of
from ghost_ray.files.manifest import RESULT_VERSIONS
from ghost_ray.sources import LabelFacts, fingerprint_of, list_all, open_source

Strict = Literal["never", "minor", "any"]
_LIBRARIES = ("timm", "torch")
_SEEN = "weights.json"
_SEEN_LABELS = "labels.json"
_MAX_CLASSES_BYTES = 64 << 20
# How fast something runs, and how much may fail, changes no result.
_FREE = {"data", "max_failures"}


def digest(value: Any) -> str:
    """SHA-256 of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def named(section: str) -> Iterator[None]:
    """Name the section of the file in errors about its settings."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{section}.{error.field}", error.value, error.problem, error.hint) from None


def listing_of(section: DataSection) -> str:
    """Fingerprint of the images that are there, as stores carry it."""
    return fingerprint_of(section.data, section.format, section.root)


def data_digest(section: DataSection, listing: str) -> str:
    """Digest of a data set: its listing, its place and the options that choose from it and label it."""
    options = {name: value for name, value in section.model_dump(mode="json").items() if name not in _FREE}
    if options.get("classes"):
        options["classes"] = classes_digest(options["classes"])
    return digest({"uri": redact(section.data), "listing": listing, **options})


def classes_digest(classes: str | None) -> str | None:
    """Digest of a table of classes, None if there is none."""
    if classes is None:
        return None
    try:
        with reaching(classes, "classes"):
            return hashlib.sha256(read_bytes(classes, limit=_MAX_CLASSES_BYTES)).hexdigest()
    except ValueError as error:
        raise InputError("classes", classes, f"cannot be read: {one_line(error)}", "name a file") from None


def labels_digest(section: DataSection, listing: str, work: str) -> str:
    """Digest of the labels that the images have; shards are looked into where their listing is not kept in ``work``."""
    seen = _seen(work, _SEEN_LABELS)
    key = f"{section.format} {listing}"
    if key not in seen:
        source = list_all(open_source(section.data, section.format, section.root))
        seen[key] = digest(LabelFacts.of(source.preview.items).values)
        _keep(work, _SEEN_LABELS, seen)
    return seen[key]


def installed_libraries() -> dict[str, str]:
    """The versions of what embeds."""
    return {name: importlib.metadata.version(name) for name in _LIBRARIES}


def same_libraries(now: Mapping[str, str], then: Mapping[str, str], strict: Strict) -> bool:
    """Whether what was computed by ``then`` need not be computed again; ``then`` may name other packages as well.

    ``never``: no difference counts; ``minor``: 2.15.0 and 2.15.1 are the same, 2.16 is another; ``any``: each is
    another.
    """
    if strict == "never":
        return True
    return all(name in then and _version(now[name], strict) == _version(then[name], strict) for name in _LIBRARIES)


def _version(text: str, strict: Strict) -> str:
    return text if strict == "any" else ".".join(text.split(".")[:2])


def software_digest() -> str:
    """Digest of what embeds, the same for patch releases: the libraries, and the code here by its results' version."""
    minor = {name: _version(text, "minor") for name, text in installed_libraries().items()}
    return digest([minor, RESULT_VERSIONS["store"]])


def store_name(role: str, weights: str, network: NetworkSection, data: str, software: str) -> str:
    """The folder of an extracted store; the same for as long as network, data and options are."""
    options = network.model_dump(mode="json", include=set(EMBEDDING_OPTIONS))
    made_from = [weights, options, data, software]
    return f"{role}-{digest(made_from)[:12]}"


def weights_digest(network: NetworkSection, work: str) -> str:
    """The network's fingerprint; that of a file with the same bytes is kept in the folder ``work``."""
    version = _weights_version(network)
    if version is None:
        return _load_fingerprint(network)
    seen = _seen(work, _SEEN)
    key = f"{network.model} {version}"
    if key not in seen:
        seen[key] = _load_fingerprint(network)
        _keep(work, _SEEN, seen)
    return seen[key]


def _weights_version(network: NetworkSection) -> str | None:
    """A string that changes whenever the weights change; None if only loading the network can tell.

    A local file is hashed. Of a remote one, and of a repository of the Hugging Face hub, the store is asked which
    version it has: nothing is downloaded.
    """
    if network.weights is None:
        return hub_version(network.model)
    if not is_local(network.weights):
        return version_of(network.weights, "weights")
    try:
        with open(network.weights, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        problem = f"cannot be read: {one_line(error.strerror)}"
        raise InputError("weights", network.weights, problem, "name a readable file") from None


def _keep(work: str, name: str, seen: dict[str, str]) -> None:
    with contextlib.suppress(OSError):  # only a convenience of the next run
        write_json(join(work, name), seen)


def _seen(work: str, name: str) -> dict[str, str]:
    """What earlier runs found out: ``model file-hash`` → fingerprint of the weights, a listing → its labels."""
    try:
        content = read_json(join(work, name))
    except (OSError, ValueError):
        return {}
    entries = content.items() if isinstance(content, dict) else ()
    return {key: value for key, value in entries if isinstance(value, str) and len(value) == 64}


def _load_fingerprint(network: NetworkSection) -> str:
    from ghost_ray.backbone import network_facts

    return network_facts(network.model, network.weights).weights_sha256
