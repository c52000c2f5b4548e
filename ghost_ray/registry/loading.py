"""``ghost_ray.load``: the model a service scores with, and a cheap way to notice a newer one."""

from __future__ import annotations

from dataclasses import dataclass

from ghost_ray.errors import InputError
from ghost_ray.files import MANIFEST, join, kind_of, redact
from ghost_ray.model import Model
from ghost_ray.registry.pointer import CURRENT, Pointer, current
from ghost_ray.registry.versions import version_folder

_TRIES = 3


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model as one version has it. Immutable: a request never sees the means of one version with the threshold
    of another.

    >>> loaded = ghost_ray.load("s3://models/ghost")  # doctest: +SKIP
    >>> loaded = loaded.refresh()                     # doctest: +SKIP
    """

    uri: str
    version: str | None  # None where `uri` is a model and not a registry
    model: Model
    threshold: float | None  # accept scores at or above; None where none was chosen

    def refresh(self) -> Loaded:
        """This very object, or the version that has become current since; asks for one small file."""
        if self.version is None:
            return self
        pointer = current(self.uri)
        return self if pointer is None or pointer.version == self.version else load(self.uri)


def load(uri: str) -> Loaded:
    """Load the current version of a registry, or a model folder made by ``fit``, local or on an object store.

    Raises
    ------
    InputError
        Where there is neither, or what is there is broken.
    """
    pointer = current(uri)
    if pointer is None:
        if kind_of(join(uri, "versions")) == "folder":
            raise InputError("registry", redact(uri), f"has no {CURRENT} yet", "run `ghost-ray refit --config FILE`")
        return _loaded(uri, None, Model.open(uri, "registry"))
    for _ in range(_TRIES - 1):
        try:
            return _open(uri, pointer)
        except InputError:
            # The version may have been pruned since the pointer was read; then there is a newer pointer.
            newer = current(uri)
            if newer is None or newer.version == pointer.version:
                raise
            pointer = newer
    return _open(uri, pointer)


def _open(root: str, pointer: Pointer) -> Loaded:
    folder = version_folder(root, pointer.version)
    loaded = _loaded(root, pointer.version, Model.open(join(folder, "model"), "registry"))
    # A version is removed manifest first: while that stands, nothing was missing of what has been read.
    if kind_of(join(folder, MANIFEST)) != "file":
        raise InputError("registry", redact(root), f"{pointer.version} was removed while it was read", "load again")
    return loaded


def _loaded(uri: str, version: str | None, model: Model) -> Loaded:
    chosen = model.thresholds()
    return Loaded(uri, version, model, None if chosen is None else float(chosen["threshold"]))
