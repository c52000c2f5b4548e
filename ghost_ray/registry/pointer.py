"""``current.json``: which version serves, what served before, and what was taken back.

The file is small and always replaced whole, so that a reader sees the old pointer or the new one. Its history lies
in the same file and can therefore never disagree with it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from ghost_ray.errors import InputError, one_line
from ghost_ray.files import join, kind_of, read_json, redact, write_json
from ghost_ray.manifest import Part, now
from ghost_ray.registry.locks import hold
from ghost_ray.registry.versions import is_version_id

CURRENT = "current.json"
_HISTORY = 100
_WAIT_SECONDS = 30.0

By = Literal["refit", "promote", "rollback"]


def _moment(text: str) -> str:
    if datetime.datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("has no time zone")
    return text


Moment = Annotated[str, AfterValidator(_moment)]  # ISO 8601, as `now` writes it


class Move(Part):
    """One move of the pointer; ``previous`` is where a rollback from here leads."""

    version: str
    previous: str | None
    at: Moment
    by: By


class Held(Part):
    """A version that was rolled back: no refit promotes the same inputs again, only a person does."""

    version: str
    fingerprint: str
    at: str


class Pointer(Part):
    """The content of ``current.json``."""

    format: Literal["ghost_ray"] = "ghost_ray"
    format_version: Literal[1] = 1
    kind: Literal["current"] = "current"
    version: str
    history: list[Move] = Field(min_length=1)
    held: list[Held] = []

    @property
    def previous(self) -> str | None:
        """Where a rollback leads."""
        return self.history[-1].previous

    @property
    def promoted(self) -> str:
        """When the pointer was moved last."""
        return self.history[-1].at

    def is_held(self, fingerprint: str) -> bool:
        """Whether the version made from these inputs was rolled back."""
        return any(held.fingerprint == fingerprint for held in self.held)


def current(root: str) -> Pointer | None:
    """Read the pointer: one small file, cheap enough to ask before every request. None in an empty registry."""
    where = join(root, CURRENT)
    try:
        pointer = Pointer.model_validate(read_json(where))
    except FileNotFoundError:
        if kind_of(root) == "file":
            raise InputError("ROOT", redact(root), "is a file", "name the folder of a registry") from None
        return None
    except ValidationError as error:
        first = error.errors()[0]
        raise _broken(root, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (ValueError, OSError) as error:
        raise _broken(root, one_line(error)) from None
    for move in pointer.history:
        if not (is_version_id(move.version) and (move.previous is None or is_version_id(move.previous))):
            raise _broken(root, f"names {one_line(move.version, 40)!r}, which is no version id")
    if pointer.version != pointer.history[-1].version:
        raise _broken(root, "its version is not the last of its history")
    return pointer


def move(root: str, decide: Callable[[Pointer | None], Pointer]) -> Pointer:
    """Move the pointer in one step to what ``decide`` makes of the present one; nobody else moves it meanwhile.

    ``decide`` returns the pointer it was given to leave it, or raises.
    """
    with hold(root, "promotion", wait=_WAIT_SECONDS) as lock:
        old = current(root)
        new = decide(old)
        if new is not old:
            lock.check()
            write_json(join(root, CURRENT), new.model_dump(mode="json"))
        return new


def promoted(pointer: Pointer | None, version: str, by: By) -> Pointer:
    """The pointer after a promotion of ``version``; the version is no longer held."""
    at = now()
    if pointer is None:
        return Pointer(version=version, history=[Move(version=version, previous=None, at=at, by=by)])
    if pointer.version == version:
        return pointer
    step = Move(version=version, previous=pointer.version, at=at, by=by)
    held = [entry for entry in pointer.held if entry.version != version]
    return pointer.model_copy(
        update={"version": version, "history": [*pointer.history, step][-_HISTORY:], "held": held}
    )


def rolled_back(pointer: Pointer, fingerprint: str) -> Pointer:
    """The pointer one version back; the present version, made from ``fingerprint``, is held from now on.

    A second rollback goes further back rather than forth again: the version returned to keeps the predecessor it
    had when it was promoted.
    """
    target = pointer.previous
    if target is None:
        raise ValueError("there is no previous version")
    before = next((step.previous for step in reversed(pointer.history[:-1]) if step.version == target), None)
    step = Move(version=target, previous=before, at=now(), by="rollback")
    held = [entry for entry in pointer.held if entry.version != pointer.version]
    held.append(Held(version=pointer.version, fingerprint=fingerprint, at=step.at))
    return pointer.model_copy(
        update={"version": target, "history": [*pointer.history, step][-_HISTORY:], "held": held[-_HISTORY:]}
    )


def _broken(root: str, problem: str) -> InputError:
    return InputError("ROOT", redact(root), f"{CURRENT} {problem}", f"restore {CURRENT} from a backup")
