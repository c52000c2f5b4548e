"""What refits were tried and how they ended: one small file each, so that nothing is ever half written."""

from __future__ import annotations

import contextlib
import datetime
import secrets
from typing import Any

from ghost_ray.files import join, names_in, read_json, resolve, write_json
from ghost_ray.manifest import now

ATTEMPTS = "attempts"
_KEPT = 50


class Attempt:
    """One refit in the log; ``running`` until it says how it ended."""

    def __init__(self, root: str, **about: Any) -> None:
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        self._where = join(root, ATTEMPTS, f"{stamp}-{secrets.token_hex(3)}.json")
        self._content: dict[str, Any] = {"started": now(), "outcome": "running", **about}
        self._root = root
        write_json(self._where, self._content)

    def note(self, **facts: Any) -> None:
        """Add what has become known meanwhile."""
        self._content |= facts
        write_json(self._where, self._content)

    def end(self, outcome: str, **facts: Any) -> None:
        """Say how it ended and forget the oldest attempts."""
        self.note(outcome=outcome, ended=now(), **facts)
        for name in names_in(join(self._root, ATTEMPTS))[:-_KEPT]:
            filesystem, path = resolve(join(self._root, ATTEMPTS, name))
            with contextlib.suppress(OSError):
                filesystem.delete_file(path)


def last_attempts(root: str, count: int, *, running: bool) -> list[dict[str, Any]]:
    """The newest attempts, newest first; one that never ended was killed unless a refit is ``running`` now."""
    found: list[dict[str, Any]] = []
    for name in reversed(names_in(join(root, ATTEMPTS))):
        if len(found) == count:
            break
        with contextlib.suppress(OSError, ValueError):
            content = read_json(join(root, ATTEMPTS, name))
            if isinstance(content, dict):
                found.append(content)
    for position, attempt in enumerate(found):
        if attempt.get("outcome") == "running" and not (running and position == 0):
            attempt["outcome"] = "interrupted"
    return found
