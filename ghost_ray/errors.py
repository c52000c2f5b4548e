"""What can go wrong in a way the user is told about, and the exit code each kind ends in."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

# ``user:password@`` after ``://``; a secret may hold slashes, a bucket's name no colon.
_CREDENTIALS = re.compile(r"(?<=://)(?:[^/@\s]*:[^@\s]*|[^/@\s]+)@")
_SECRET_OPTIONS = re.compile(r"(?i)([?&](?:access_key|secret_key|session_token|token|password)=)[^&\s]*")


class GhostRayError(Exception):
    """Base of everything reported in one line, without a traceback; no URI in it shows its credentials."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(redact(message))


class InputError(GhostRayError):
    """The input or an option is wrong; nothing was changed.

    Parameters
    ----------
    field : str
        The option or file the user can change, as they would write it (``--alpha``, ``STORE``).
    value : object
        What was given.
    problem : str
        Why it cannot be used, and what is allowed.
    hint : str
        The next step, a sentence or a command.
    """

    exit_code = 2

    def __init__(self, field: str, value: object, problem: str, hint: str = "") -> None:
        self.field, self.value, self.problem, self.hint = field, value, problem, hint
        # Before it is shortened: half a URI does not look like one.
        shown = one_line(redact(str(value)))
        given = f" {shown!r}" if shown else ""
        super().__init__(
            f"{one_line(field)}{given}: {one_line(redact(problem))}" + (f" — {one_line(hint)}" if hint else "")
        )

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str, str]]:
        # Ray carries exceptions between processes; the default would replay only the message.
        return type(self), (self.field, str(self.value), self.problem, self.hint)


class GateFailed(GhostRayError):
    """A gate said no (``--fail-above``, ``--max-failures``, a refit's gates): exit 1.

    Parameters
    ----------
    message : str
    result : dict, optional
        What the job would have returned: it stands, and is shown before the message.
    """

    def __init__(self, message: str, result: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.result = result


class JobFailed(GhostRayError):
    """The system broke underneath the job; what was finished is kept and the same command goes on."""


def one_line(value: object, limit: int = 300) -> str:
    """Any value as a single printable line, shortened in the middle where it is very long."""
    text = "".join(c if c.isprintable() else " " for c in str(value)).strip()
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 2 :]}"


def redact(text: str) -> str:
    """``text`` without the credentials of the URIs in it, fit for logs and manifests."""
    return _SECRET_OPTIONS.sub(r"\1…", _CREDENTIALS.sub("", text))


def nearest(name: str, allowed: Iterable[str], count: int = 1) -> str:
    """``nearest: 'resnet50'`` for a misspelt name, or the empty string where nothing is close."""
    close = difflib.get_close_matches(name, list(allowed), n=count, cutoff=0.6)
    return "nearest: " + ", ".join(repr(c) for c in close) if close else ""
