"""``ghost_ray.load``: the model of a service, and a cheap check for a newer one."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from ghost_ray.errors import Damaged, GhostRayError, InputError, redact
from ghost_ray.files import MANIFEST, join, kind_of, one_attempt, reaching, read_bytes
from ghost_ray.files.digests import Digest, Digests, damaged, require_same, unlisted, wrong_digests
from ghost_ray.model import Model
from ghost_ray.registry.pointer import CURRENT, Pointer, find_pointer
from ghost_ray.registry.versions import VersionManifest, names_version, read_version, resolve_id, version_folder

_TRIES = 3
_REFUSED_SECONDS = 0.5  # before a version that could not be loaded is tried again
_log = logging.getLogger("ghost_ray.registry")


@dataclass
class _Trouble:
    """Why a newer version could not be loaded, if so, and which one was tried when."""

    text: str | None = None
    version: str | None = None
    until: float = 0.0

    def is_over(self) -> None:
        if self.text is not None:
            _log.info("the registry can be read again")
        self.text = self.version = None

    def note(self, error: GhostRayError, version: str | None, serving: str | None) -> None:
        if error.full != self.text:
            _log.warning("%s continues to serve: %s", serving, error)
        self.text, self.version = error.full, version
        self.until = time.monotonic() + _REFUSED_SECONDS


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model as one version has it. Immutable: a request never sees the means of one version with the threshold
    of another.

    >>> loaded = ghost_ray.load("s3://models/ghost")  # doctest: +SKIP
    >>> loaded = loaded.refresh()                     # doctest: +SKIP
    """

    uri: str
    version: str | None  # None if `uri` is a model and not a registry
    model: Model
    threshold: float | None  # accept scores at or above; None if none was chosen
    wanted: str | None = None  # the label, or the version, that was requested
    require_digests: bool = False  # as for `load`
    weights: str | None = None  # where the network's weights were when the version was made; never opened by itself
    _kept: Mapping[str, Digest] = field(default_factory=dict, repr=False)
    _trouble: _Trouble = field(default_factory=_Trouble, repr=False)

    @property
    def trouble(self) -> str | None:
        """Why the last `refresh` failed or kept the old version; None if all is well."""
        return self._trouble.text

    def kept_weights(self) -> str | None:
        """The copy of the network's weights in the version's folder, every byte compared; None if none was kept.

        Raises
        ------
        Damaged
            If it is not as it was written.
        """
        if self.version is None or not self._kept:
            return None
        folder = version_folder(self.uri, self.version)
        with reaching(folder, "registry"):
            damages = wrong_digests(folder, self._kept)
        if damages:
            raise damaged("registry", f"{redact(self.uri)} {self.version}", damages, "give `weights`, or roll back")
        return join(folder, next(iter(self._kept)))

    def refresh(self) -> Loaded:
        """This object, or the version that has become current since; reads one small file.

        It never raises because of the registry. While the store does not answer, or the new current version is damaged,
        this object continues to serve; `trouble` says why, and the log says it once.
        """
        if self.version is None:
            return self
        version = None
        try:
            with one_attempt():
                version = _target(self.uri, _pointer(self.uri), self.wanted, self.version)
                if version == self.version:
                    self._trouble.is_over()
                    return self
                if version == self._trouble.version and time.monotonic() < self._trouble.until:
                    return self
                newer = load(self.uri, version=self.wanted, require_digests=self.require_digests)
        except GhostRayError as error:
            self._trouble.note(error, version, self.version)
            return self
        self._trouble.is_over()
        return newer


def load(uri: str, *, version: str | None = None, require_digests: bool = False) -> Loaded:
    """Load the current version of a registry, or a model folder made by ``fit``, local or on an object store.

    Parameters
    ----------
    version : str, optional
        A label, an id, a number or the beginning of an id, instead of the current version. `refresh` follows a label.
    require_digests : bool, default False
        Refuse a model whose manifest lists no files, as those of 0.1 do, or leaves out a file beside it. A digest shows
        accidents; whoever can write to the folder can make new ones.

    Raises
    ------
    InputError
        If there is neither, or it is broken; Damaged if a file is not as it was written.
    Unreachable
        If the store does not answer.
    """
    with reaching(uri, "registry"):
        pointer = find_pointer(uri).pointer
        if pointer is None and version is None and kind_of(join(uri, "versions")) != "folder":
            return _loaded(uri, None, uri, None, require_digests)
        for _ in range(_TRIES - 1):
            chosen = _target(uri, pointer, version)
            try:
                return _open(uri, chosen, version, require_digests)
            except InputError:
                # The version may have been pruned since the pointer was read; then there is a newer pointer.
                pointer = find_pointer(uri).pointer
                if _target(uri, pointer, version) == chosen:
                    raise
        return _open(uri, _target(uri, pointer, version), version, require_digests)


def _pointer(uri: str) -> Pointer | None:
    with reaching(uri, "registry"):
        return find_pointer(uri).pointer


def _target(uri: str, pointer: Pointer | None, wanted: str | None, serving: str | None = None) -> str:
    """The version to serve; ``serving`` is the one that is loaded, which needs no listing to be named again."""
    if wanted is not None:
        labels = {} if pointer is None else pointer.labels
        if wanted in labels:
            return labels[wanted]
        if serving is not None and names_version(wanted, serving):
            return serving
        return resolve_id(uri, wanted, labels)
    if pointer is None:
        raise InputError("registry", redact(uri), f"has no {CURRENT} yet", "run `ghost-ray refit --config FILE`")
    return pointer.version


def _open(root: str, version: str, wanted: str | None, require_digests: bool) -> Loaded:
    folder = version_folder(root, version)
    manifest = read_version(root, version, "registry")
    if require_digests:
        _require_listed(root, folder, manifest.digests)
    if manifest.digests is not None:
        # The model's own manifest has the digests of the files beside it, and the version's has that manifest's.
        try:
            require_same(read_bytes(join(folder, "model", MANIFEST)), manifest.digests[f"model/{MANIFEST}"])
        except (ValueError, KeyError) as error:
            advice = "`ghost-ray registry rollback` returns to an intact version, a refit makes this one again"
            raise Damaged("registry", redact(root), f"{version}: model/{MANIFEST} {error}", advice) from None
    loaded = _loaded(root, version, join(folder, "model"), wanted, require_digests, manifest)
    # A version is removed manifest first: while it exists, everything read so far was complete.
    if kind_of(join(folder, MANIFEST)) != "file":
        raise InputError("registry", redact(root), f"{version} was removed while it was read", "load again")
    return loaded


def _loaded(
    uri: str,
    version: str | None,
    place: str,
    wanted: str | None,
    require_digests: bool,
    manifest: VersionManifest | None = None,
) -> Loaded:
    model = Model.open(place, "registry")
    if require_digests:
        _require_listed(uri, place, model.manifest.digests)
    chosen = model.thresholds()
    threshold = None if chosen is None else float(chosen["threshold"])
    kept = manifest.kept_weights if manifest else None
    digests = {kept: manifest.digests[kept]} if manifest and manifest.digests and kept else {}
    weights = manifest.weights if manifest else None
    return Loaded(uri, version, model, threshold, wanted, require_digests, weights, digests)


def _require_listed(uri: str, folder: str, digests: Digests | None) -> None:
    found = unlisted(folder, digests)
    if found:
        said = "; ".join(str(one) for one in found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
        raise InputError("registry", redact(uri), said, "make it again, or load it without `require_digests`")
