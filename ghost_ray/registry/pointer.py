"""``current.json``: the current version, the previous ones, which were rolled back, and which have a label.

The file is small, sealed and always replaced whole, so that a reader sees the old pointer or the new one. Its history
is in the same file and can therefore never disagree with it. It is replaced by compare and swap: of two processes at
the same time one wins, and the other gets an error. A backup beside it is used if it is lost or damaged.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from ghost_ray.config.fields import Name
from ghost_ray.errors import Damaged, InputError, one_line, redact
from ghost_ray.files import join, kind_of, reaching, write_bytes
from ghost_ray.files.compare_and_swap import Changed, read_snapshot, swap
from ghost_ray.files.json_files import sealed, unsealed
from ghost_ray.files.manifest import JsonRecord, Moment, first_problem, now
from ghost_ray.files.paths import read_bytes
from ghost_ray.registry.locks import Busy
from ghost_ray.registry.versions import is_version_id
from ghost_ray.registry.who import who

CURRENT = "current.json"
BACKUP = "current.backup.json"
_HISTORY = 100
_TRIES = 20
_PAUSE_SECONDS = 0.05
_MAX_BYTES = 16 << 20

By = Literal["refit", "promote", "rollback"]


def _version(text: str) -> str:
    # A name from a file must never lead out of `versions/`.
    if not is_version_id(text):
        raise ValueError(f"{one_line(text, 40)!r} is not a version id")
    return text


VersionId = Annotated[str, AfterValidator(_version)]


class Move(JsonRecord):
    """One move of the pointer; ``previous`` is where a rollback from here leads."""

    version: VersionId
    previous: VersionId | None
    at: Moment
    by: By
    user: str | None = None  # version 0.1 did not record who
    host: str | None = None
    job: str | None = None
    reason: str | None = None


class Held(JsonRecord):
    """A version that was rolled back: no refit promotes the same inputs again, only a person does."""

    version: VersionId
    fingerprint: str = Field(min_length=1)  # its beginning, if the version could not be read
    at: str


class Pointer(JsonRecord):
    """The content of ``current.json``."""

    format: Literal["ghost_ray"] = "ghost_ray"
    format_version: Literal[1] = 1
    kind: Literal["current"] = "current"
    version: VersionId
    history: list[Move] = Field(min_length=1)
    held: list[Held] = []
    labels: dict[Name, VersionId] = {}
    removing: list[VersionId] = []  # being deleted by a prune: they cannot be promoted or labelled

    @property
    def previous(self) -> str | None:
        """Where a rollback leads."""
        return self.history[-1].previous

    @property
    def promoted(self) -> str:
        """When the pointer was moved last."""
        return self.history[-1].at

    def held_versions(self, fingerprint: str) -> list[str]:
        """The versions made from these inputs that were rolled back."""
        return [held.version for held in self.held if fingerprint.startswith(held.fingerprint)]

    def way_back(self) -> list[str]:
        """The versions that rollbacks from here lead to, one after the other.

        A second rollback goes further back, not forward again: a version keeps the predecessor it had when it was
        promoted.
        """
        found: list[str] = []
        at = self.previous
        steps = self.history[:-1]
        while at is not None and at not in found and at != self.version:
            found.append(at)
            place = next((i for i in range(len(steps) - 1, -1, -1) if steps[i].version == at), None)
            at = None if place is None else steps[place].previous
            steps = [] if place is None else steps[:place]
        return found


@dataclass(frozen=True)
class Found:
    """The pointer of a registry, and what is wrong with the file it should have come from."""

    pointer: Pointer | None
    trouble: str | None = None


def current(root: str) -> Pointer | None:
    """Read the pointer: one small file, cheap enough to read before every request. None in an empty registry."""
    return find_pointer(root).pointer


def find_pointer(root: str) -> Found:
    """The pointer, or its copy where the file is lost or damaged.

    Raises
    ------
    Damaged
        If neither can be read.
    Unreachable, InputError
        If the store does not answer, or refuses.
    """
    with reaching(root, "root"):
        try:
            data = read_bytes(join(root, CURRENT), limit=_MAX_BYTES)
        except FileNotFoundError:
            data = None
        except ValueError as error:
            raise _broken(root, one_line(error)) from None
        return _understood(root, data)


def _understood(root: str, data: bytes | None) -> Found:
    """The content of ``current.json``; its backup is read if it is invalid."""
    if data is not None:
        try:
            return Found(_parsed(data))
        except ValueError as error:
            problem = one_line(error)
    else:
        problem = "is missing"
    try:
        spare = _parsed(read_bytes(join(root, BACKUP), limit=_MAX_BYTES))
    except FileNotFoundError:
        if data is not None:
            raise _broken(root, problem) from None
        if kind_of(root) == "file":
            raise InputError("root", redact(root), "is a file", "name the folder of a registry") from None
        return Found(None)
    except ValueError:
        raise _broken(root, problem) from None
    return Found(spare, f"{CURRENT} {problem}; {BACKUP} is used, and the next promotion repairs it")


def _parsed(data: bytes) -> Pointer:
    try:
        pointer = Pointer.model_validate(unsealed(data))
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
    if pointer.version != pointer.history[-1].version:
        raise ValueError("its version is not the last of its history")
    return pointer


def move(root: str, decide: Callable[[Pointer | None], Pointer], *, insist: bool = False) -> Pointer:
    """Move the pointer in one step to what ``decide`` makes of the present one.

    ``decide`` returns the pointer it was given to leave it, or raises. If another process made another version current
    meanwhile it is called again if the caller ``insist``\\ s.

    Raises
    ------
    Busy
        If another process was first; nothing was changed.
    """
    where = join(root, CURRENT)
    first: Pointer | None = None
    for attempt in range(_TRIES):
        with reaching(root, "root"):
            seen = read_snapshot(where)
            old = _understood(root, None if seen is None else seen.data).pointer
        if attempt == 0:
            first = old
        elif not insist and _name(old) != _name(first):
            raise _too_late(root, old)
        new = decide(old)
        if new is old:
            return new
        data = sealed(new.model_dump(mode="json"))
        with reaching(root, "root"):
            try:
                swap(where, data, seen)
            except Changed:
                time.sleep(_PAUSE_SECONDS)
                continue
            write_bytes(join(root, BACKUP), data)
        return new
    raise _too_late(root, current(root))


def mend(root: str) -> None:
    """Restore the pointer or its backup, if one of them was lost, damaged or never written."""
    where, spare = join(root, CURRENT), join(root, BACKUP)
    seen = read_snapshot(where)
    found = _understood(root, None if seen is None else seen.data)
    if found.pointer is None:
        return
    data = seen.data if seen is not None and found.trouble is None else sealed(found.pointer.model_dump(mode="json"))
    with contextlib.suppress(Changed):  # by a process that writes the backup as well
        if seen is None or data != seen.data:
            swap(where, data, seen)
        copy = read_snapshot(spare)
        if copy is None or copy.data != data:
            swap(spare, data, copy)


def _too_late(root: str, pointer: Pointer | None) -> Busy:
    now_current = "no version is current" if pointer is None else f"{pointer.version} is current now"
    return Busy(
        f"someone else moved {CURRENT} of {redact(root)} at the same time: {now_current}; check it, then run again"
    )


def _name(pointer: Pointer | None) -> str | None:
    return None if pointer is None else pointer.version


def promoted(pointer: Pointer | None, version: str, by: By, reason: str | None = None) -> Pointer:
    """The pointer after a promotion of ``version``; the version is no longer held."""
    step = Move(version=version, previous=_name(pointer), at=now(), by=by, reason=reason, **who())
    if pointer is None:
        return Pointer(version=version, history=[step])
    if pointer.version == version:
        return pointer
    require_kept(pointer, version)
    held = [entry for entry in pointer.held if entry.version != version]
    return _moved(pointer, step, held)


def rolled_back(pointer: Pointer, target: str, fingerprint: str | None, reason: str | None = None) -> Pointer:
    """The pointer after a rollback to ``target``; the present version, made from ``fingerprint``, is held.

    Without a fingerprint it is not: a version that is left because it is damaged may be made again.
    """
    require_kept(pointer, target)
    way = pointer.way_back()
    further = way[way.index(target) + 1 :]
    step = Move(
        version=target, previous=further[0] if further else None, at=now(), by="rollback", reason=reason, **who()
    )
    held = [entry for entry in pointer.held if entry.version != pointer.version]
    if fingerprint is not None:
        held.append(Held(version=pointer.version, fingerprint=fingerprint, at=step.at))
    return _moved(pointer, step, held)


def released(pointer: Pointer, version: str) -> Pointer:
    """The pointer after the hold of ``version`` was ended: the same object if there is none."""
    held = [entry for entry in pointer.held if entry.version != version]
    return pointer if len(held) == len(pointer.held) else pointer.model_copy(update={"held": held})


def _moved(pointer: Pointer, step: Move, held: list[Held]) -> Pointer:
    history = [*pointer.history, step][-_HISTORY:]
    return pointer.model_copy(update={"version": step.version, "history": history, "held": held[-_HISTORY:]})


def require_kept(pointer: Pointer, version: str) -> None:
    """Refuse a version that a prune is deleting."""
    if version in pointer.removing:
        raise InputError("version", version, "is being removed by a prune", "name another")


def _broken(root: str, problem: str) -> Damaged:
    advice = f"restore {CURRENT} from a backup, or remove it and `ghost-ray registry promote` a version"
    return Damaged("root", redact(root), f"{CURRENT} {problem}", advice)
