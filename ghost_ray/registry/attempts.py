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
from ghost_ray.registry.who import Who, who

ATTEMPTS = "attempts"
_KEPT = 50

Outcome = Literal["running", "promoted", "up to date", "held", "refused", "busy", "failed", "stopped", "interrupted"]


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


def last_attempts(root: str, count: int, *, running: bool) -> list[AttemptRecord]:
    """The newest attempts, newest first; one that never ended was killed unless a refit is ``running`` now."""
    found: list[AttemptRecord] = []
    for name in reversed(names_in(join(root, ATTEMPTS))):
        if len(found) == count:
            break
        with contextlib.suppress(FileNotFoundError, ValueError):
            found.append(_RECORD.validate_python(read_json(join(root, ATTEMPTS, name), MAX_CHECKED_VALUES)))
    for position, attempt in enumerate(found):
        if attempt["outcome"] == "running" and not (running and position == 0):
            attempt["outcome"] = "interrupted"
    return found
