"""Versions of a registry: complete, immutable folders below ``versions/``.

Layout::

    ROOT/current.json             the one pointer; current.backup.json is a copy of it
    ROOT/versions/<id>/           model/, audit/, evaluation/, drift.json, report.html, weights.* where a copy is kept,
                                  manifest.json (written last)
    ROOT/attempts/                one small file per refit: when, how it ended
    ROOT/work/                    stores a refit extracted, kept for the next one

An id is a running number and the start of the fingerprint the version was made from: ``0007-9f2c41d0a8be``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pyarrow import fs
from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from ghost_ray.errors import InputError, redact
from ghost_ray.files import MANIFEST, folders_in, join, remove_tree, resolve
from ghost_ray.files.manifest import Manifest, read_manifest

VERSIONS = "versions"
WORK = "work"
WEIGHTS = "weights."  # what the name of a copy of the weights begins with, in a version's folder
_ID = re.compile(r"[0-9]{4,12}-[0-9a-f]{12}")
_DIGITS = re.compile(r"[0-9]{1,12}")  # as many as an id can have
_STAGING = ".partial"
# As in the manifest around them: keys of later format versions are carried along unread.
_CARRIED = ConfigDict(extra="allow", allow_inf_nan=False)


@with_config(_CARRIED)
class Summary(TypedDict, total=False):
    """A version's figures for the gates, the drift and people; None if one could not be computed."""

    accuracy: float | None
    accuracy_on: str
    rejected_fraction: float | None
    auoscr: dict[str, float]
    classes_without_gaussian: int
    threshold: float | None
    threshold_problem: str
    rows_used: int
    failures: dict[str, int]


@with_config(_CARRIED)
class AnsweredGate(TypedDict):
    """A gate and its result for a version."""

    name: str
    value: float | None
    limit: float
    text: str
    passed: bool


class VersionManifest(Manifest):
    """Manifest of a version; ``network``, ``data`` and ``rows`` are those of its model."""

    kind: Literal["version"] = "version"
    version: str
    fingerprint: str
    inputs: dict[str, str] = {}
    summary: Summary = {}
    gates: list[AnsweredGate] = []
    previous: str | None = None
    stores: dict[str, str] = {}
    stages: dict[str, str] = {}  # what each result in the version was made from, as a digest
    # Where the network's weights were, for people: nothing opens it by itself. None: its published ones.
    weights: str | None = None

    @property
    def kept_weights(self) -> str | None:
        """The name of the copy of the weights in the version's folder; None if none was asked for."""
        return next((name for name in self.digests or {} if name.startswith(WEIGHTS) and "/" not in name), None)


def is_version_id(text: str) -> bool:
    """Whether ``text`` has the form of an id: what is read from a file never leads out of ``versions/``."""
    return _ID.fullmatch(text) is not None


def version_folder(root: str, version: str) -> str:
    """The folder of a version."""
    return join(root, VERSIONS, version)


def is_in_version(model: str) -> bool:
    """Whether a model's folder is that of a published version."""
    filesystem, path = resolve(model)
    folder = path.rpartition("/")[0]
    if not is_version_id(folder.rpartition("/")[2]):
        return False
    return bool(filesystem.get_file_info(f"{folder}/{MANIFEST}").type == fs.FileType.File)


def new_id(root: str, fingerprint: str) -> str:
    """The id of the next version; the same until a version is published, so that a repeated refit resumes it."""
    latest = max((int(version.partition("-")[0]) for version in version_ids(root)), default=0)
    return f"{latest + 1:04d}-{fingerprint[:12]}"


def version_ids(root: str) -> list[str]:
    """Ids of the complete versions, oldest first."""
    filesystem, path = resolve(join(root, VERSIONS))
    # One listing, where asking for each manifest would be a request per version.
    listing = filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    steps = [info.path[len(path) :].strip("/").split("/") for info in listing if info.type == fs.FileType.File]
    found = [name[0] for name in steps if name[1:] == [MANIFEST] and is_version_id(name[0])]
    return sorted(found, key=_number)


def read_version(root: str, version: str, field: str = "version", *, alone: bool = False) -> VersionManifest:
    """The manifest of a version, checked; unless ``alone``, also that its files have the sizes they had."""
    if not is_version_id(version):
        raise InputError(field, version, "is not a version id", f"`ghost-ray registry list {redact(root)}` shows them")
    folder = version_folder(root, version)
    manifest = read_manifest(folder, VersionManifest, field, "ghost-ray refit --config FILE", alone=alone)
    if manifest.version != version:
        raise InputError(field, version, f"its manifest names version {manifest.version!r}", "restore the folder")
    return manifest


def resolve_id(root: str, text: str, labels: Mapping[str, str] | None = None) -> str:
    """A version's id from the id itself, a label, its number or any unambiguous beginning."""
    known = version_ids(root)
    if text in known:
        return text
    if labels and text in labels:
        return labels[text]
    by_number = [version for version in known if _DIGITS.fullmatch(text) and _number(version) == int(text)]
    matching = by_number or [version for version in known if text and version.startswith(text)]
    if len(matching) != 1:
        problem = f"fits {len(matching)} versions" if matching else "is not a version of this registry"
        names = dict.fromkeys([*known[-5:], *(labels or {})])
        hint = f"there are {', '.join(names)}" if names else "there are none yet"
        raise InputError("version", text, problem, hint)
    return matching[0]


def names_version(text: str, version: str) -> bool:
    """Whether ``text`` is the number of a version, its id or the beginning of it."""
    return version.startswith(text) or (text.isdigit() and _number(version) == int(text))


def remove_version(root: str, version: str) -> None:
    """Delete a version, its manifest first: from then on the rest is not a version."""
    filesystem, path = resolve(join(version_folder(root, version), MANIFEST))
    if filesystem.get_file_info(path).type == fs.FileType.File:
        filesystem.delete_file(path)
    remove_tree(version_folder(root, version))


def unfinished(root: str) -> list[str]:
    """Folders below ``versions/`` that are not complete versions: remains of killed refits and prunes."""
    complete = set(version_ids(root))
    return [name for name in folders_in(join(root, VERSIONS)) if name not in complete and _is_leftover(name)]


def _is_leftover(name: str) -> bool:
    return is_version_id(name.removeprefix(".").removesuffix(_STAGING))


def _number(version: str) -> int:
    return int(version.partition("-")[0])
