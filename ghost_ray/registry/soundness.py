"""Whether a version is still what was written."""

from __future__ import annotations

from ghost_ray.errors import InputError, redact
from ghost_ray.files import MANIFEST, join, reaching
from ghost_ray.files.digests import Damage, damaged, wrong_digests, wrong_sizes
from ghost_ray.model import Model
from ghost_ray.registry.versions import VersionManifest, read_version, version_folder


def damages_of(root: str, version: str, *, thorough: bool = True) -> list[Damage]:
    """What is damaged in a version; ``thorough``, every byte is read, else sizes are compared."""
    try:
        manifest = read_version(root, version, alone=True)
    except InputError as error:
        return [Damage(MANIFEST, error.problem.removeprefix(f"{MANIFEST} "))]
    folder = version_folder(root, version)
    with reaching(folder, "version"):
        if manifest.digests is None:
            return _readable(folder)
        return wrong_digests(folder, manifest.digests) if thorough else wrong_sizes(folder, manifest.digests)


def _readable(folder: str) -> list[Damage]:
    """For a version without digests, as 0.1 wrote them: whether its model can be read."""
    try:
        Model.open(join(folder, "model")).thresholds()
    except InputError as error:
        return [Damage("model", error.problem)]
    return []


def require_sound(root: str, version: str) -> VersionManifest:
    """The manifest of a version of which every byte is as it was written; Damaged if one is not."""
    found = damages_of(root, version)
    if found:
        hint = "a refit with its inputs makes it again; `ghost-ray registry list` shows the others"
        raise damaged("version", f"{redact(root)} {version}", found, hint)
    return read_version(root, version)


def in_words(found: list[Damage]) -> str | None:
    """The damage of a version in one line, None if there is none."""
    if not found:
        return None
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{found[0]}{more}"


def readable_version(root: str, version: str) -> VersionManifest | None:
    """The manifest of a version; None if it is damaged."""
    try:
        return read_version(root, version, alone=True)
    except InputError:
        return None
