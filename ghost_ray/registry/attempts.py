"""The log of refits and how they ended: one small file each, so that nothing is ever half written."""

from __future__ import annotations

import contextlib
import datetime
import secrets
import time
from typing import Literal, NotRequired

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from ghost_ray.files import join, names_in, read_json, remove_file, write_json
from ghost_ray.files.json_files import MAX_CHECKED_VALUES
from ghost_ray.files.manifest import Moment, now
from ghost_ray.registry.locks import Holder
from ghost_ray.registry.who import Who, who

ATTEMPTS = "attempts"
_KEPT = 50

Outcome = Literal["running", "promoted", "up to date", "held", "refused", "busy", "failed", "stopped", "interrupted"]
# What an outcome means, the same for `status`, its `--check`, its metrics and the alert rules.
GOOD = ("promoted", "up to date")
BAD = {
    "failed": "failed",
    "refused": "was refused by a gate",
    "interrupted": "was interrupted",
    "stopped": "was stopped",
}


@with_config(ConfigDict(extra="allow", allow_inf_nan=False))
class AttemptRecord(TypedDict):
    """One refit; `ended` and `seconds` are set when it ends."""

    started: Moment
    outcome: Outcome
    job: str | None
    user: NotRequired[str | None]
    host: NotRequired[str]
    version: NotRequired[str | None]
    reason: NotRequired[str | None]
    ended: NotRequired[Moment]
    seconds: NotRequired[float]


_RECORD: TypeAdapter[AttemptRecord] = TypeAdapter(AttemptRecord)


class Attempt:
    """One refit in the log; ``running`` until it says how it ended."""

    def __init__(self, root: str) -> None:
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        self._where = join(root, ATTEMPTS, f"{stamp}-{secrets.token_hex(3)}.json")
        self._content = _begun(who())
        self._root, self._start = root, time.monotonic()
        write_json(self._where, self._content)

    def note(self, version: str) -> None:
        """Add the version, as soon as it is known."""
        self._content["version"] = version
        write_json(self._where, self._content)

    def end(self, outcome: Outcome, *, version: str | None = None, reason: str | None = None) -> None:
        """Record how it ended and remove the oldest attempts."""
        self._content["outcome"], self._content["ended"] = outcome, now()
        self._content["seconds"] = round(time.monotonic() - self._start, 3)
        if version is not None:
            self._content["version"] = version
        if reason is not None:
            self._content["reason"] = reason
        write_json(self._where, self._content)
        for name in names_in(join(self._root, ATTEMPTS))[:-_KEPT]:
            with contextlib.suppress(OSError):
                remove_file(join(self._root, ATTEMPTS, name))


def _begun(by: Who) -> AttemptRecord:
    return {"started": now(), "outcome": "running", "job": by["job"], "user": by["user"], "host": by["host"]}


def last_attempts(root: str, count: int, *, running: Holder | None) -> list[AttemptRecord]:
    """The newest attempts, newest first; one that never ended was killed, unless it is ``running`` or waits for it."""
    found: list[AttemptRecord] = []
    for name in reversed(names_in(join(root, ATTEMPTS))):
        if len(found) == count:
            break
        with contextlib.suppress(FileNotFoundError, ValueError):
            found.append(_RECORD.validate_python(read_json(join(root, ATTEMPTS, name), MAX_CHECKED_VALUES)))
    unended = [attempt for attempt in found if attempt["outcome"] == "running"]
    alive = 0
    if running is not None:  # those that began later wait for it
        jobs = [attempt["job"] for attempt in unended]
        alive = 1 + (jobs.index(running.get("job")) if running.get("job") in jobs else 0)
    for attempt in unended[alive:]:
        attempt["outcome"] = "interrupted"
    return found


def last_told(attempts: list[AttemptRecord]) -> AttemptRecord | None:
    """Of attempts, newest first, the last that says something about the registry.

    One that is still running does not, nor one that found another at work: it may have begun later and ended sooner.
    """
    return next((attempt for attempt in attempts if attempt["outcome"] not in ("running", "busy")), None)
