"""The errors that are reported to the user, and their exit codes."""

from __future__ import annotations

import contextlib
import difflib
import re
import threading
import urllib.parse
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# What stands before ``@`` in a place; a secret may hold slashes and spaces, a bucket's name no colon.
_USER = re.compile(r"([A-Za-z][\w+.-]*)://([^/@\s]*:[^@\s]*|[^/@\s]*:(?!\d+\b)[^@'\"\n]*|[^/@\s]+)@")
_OPTIONS = re.compile(r"([A-Za-z][\w+.-]*://[^\s'\"?]*\?)([^\s'\"]*)")
# The options of places that are no secrets; whatever else may be one.
_OPEN_OPTIONS = (
    *("region", "scheme", "endpoint_override", "smart_defaults", "force_virtual_addressing", "anonymous"),
    *("allow_bucket_creation", "allow_bucket_deletion", "check_directory_existence_before_creation"),
    *("project_id", "retry_limit_seconds", "tenant_id", "client_id", "credential_kind", "enable_tls"),
    *("blob_storage_authority", "blob_storage_scheme", "dfs_storage_authority", "dfs_storage_scheme"),
)
# In texts that show the end of a place alone, as some libraries' errors do.
_SECRET_OPTION = re.compile(
    r"(?i)([?&](?:access_key|secret_key|[\w-]*token|password|sig|client_secret|x-amz-(?:signature|credential))=)[^&\s'\"]*"
)


class GhostRayError(Exception):
    """Base of everything reported in one line, without a traceback; no URI in it shows its credentials."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(redact(message))

    @property
    def full(self) -> str:
        """The message without anything shortened, for files and programs."""
        return one_line(self, limit=None)


class InputError(GhostRayError):
    """The input or an option is wrong; nothing was changed.

    Parameters
    ----------
    field : str
        The argument or setting that is wrong, by its Python name (``alpha``, ``store``); the command line shows
        the option instead.
        In ``problem`` and ``hint``, other settings are in backquotes: ```overwrite=True```.
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
        super().__init__(self._worded(300))

    @property
    def full(self) -> str:
        return self._worded(None)

    def _worded(self, limit: int | None) -> str:
        shown = one_line(redact(str(self.value)), limit)
        given = f" {shown!r}" if shown else ""
        advice = f" — {one_line(redact(self.hint), limit)}" if self.hint else ""
        return f"{one_line(self.field, limit)}{given}: {one_line(redact(self.problem), limit)}{advice}"

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str, str]]:
        # Ray carries exceptions between processes; the default would replay only the message.
        return type(self), (self.field, str(self.value), self.problem, self.hint)


class Damaged(InputError):
    """A file is not what was written: missing, truncated or with other bytes. A retry does not help."""


class GateFailed(GhostRayError):
    """A gate said no (``fail_above``, ``max_failures``, a refit's gates): exit 1.

    Parameters
    ----------
    message : str
    result : mapping, optional
        What the job would have returned: it is valid, and is shown before the message.
    """

    def __init__(self, message: str, result: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.result = result


class DamageFound(GateFailed):
    """A check found damaged files, which are its result. A retry does not help."""

    exit_code = 2


class JobFailed(GhostRayError):
    """The system failed under the job; finished work is kept and the same command resumes."""


class Unreachable(JobFailed):
    """A store does not answer, or too slowly: nothing was changed, and a retry may work."""


def one_line(value: object, limit: int | None = 300) -> str:
    """Any value as a single printable line, shortened in the middle where it is longer than ``limit``."""
    text = printable(str(value)).strip()
    if limit is None or len(text) <= limit:
        return text
    text = redact(text)  # first: half a URI does not look like one
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 2 :]}"


def printable(text: str) -> str:
    """``text`` with a space for every character that a terminal or a page would obey rather than show."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def redact(text: str) -> str:
    """``text`` without the credentials of the URIs in it, fit for logs and manifests.

    Of the options at the end of a place, only those that are known to be no secrets keep their values.
    """
    return _SECRET_OPTION.sub(r"\1…", _OPTIONS.sub(_open_options, _USER.sub(_without_user, text)))


def _without_user(match: re.Match[str]) -> str:
    scheme, user = match.groups()
    # On Azure it is the container or the account.
    name = user.partition(":")[0] if scheme.lower() in ("abfs", "abfss") else ""
    return f"{scheme}://{name}@" if name else f"{scheme}://"


def _open_options(match: re.Match[str]) -> str:
    place, options = match.groups()
    if place.startswith("file:"):
        return match[0]
    shown = []
    for option in options.split("&"):
        name, sign, value = option.partition("=")
        is_open = name in _OPEN_OPTIONS and "@" not in urllib.parse.unquote(value)
        shown.append(option if is_open or not option else f"{name}=…" if sign else "…")
    return place + "&".join(shown)


def redact_values(value: Any) -> Any:
    """A copy of nested values in which no URI carries credentials."""
    if isinstance(value, Mapping):
        return {key: redact_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_values(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def nearest(name: str, allowed: Iterable[str], count: int = 1) -> str:
    """``nearest: 'resnet50'`` for a misspelt name, or the empty string where nothing is close."""
    close = difflib.get_close_matches(name, list(allowed), n=count, cutoff=0.6)
    return "nearest: " + ", ".join(repr(c) for c in close) if close else ""


class _WarningsByThread:
    """Gives each thread its own warnings.

    ``warnings.catch_warnings`` changes the state of the whole process: two threads that use it at the same time take
    each other's warnings, and the last to leave restores the state that the first had changed. Here the change is made
    once for all threads that collect.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._exchange = warnings.catch_warnings()
        self._show: Any = None
        self._thread = threading.local()

    @contextlib.contextmanager
    def collected(self) -> Iterator[list[Warning]]:
        outer = getattr(self._thread, "found", None)
        with self._lock:
            if self._blocks == 0:
                self._exchange = warnings.catch_warnings()
                self._exchange.__enter__()
                warnings.simplefilter("always")
                self._show, warnings.showwarning = warnings.showwarning, self._take
            self._blocks += 1
        found: list[Warning] = []
        self._thread.found = found
        try:
            yield found
        finally:
            self._thread.found = outer
            with self._lock:
                self._blocks -= 1
                if self._blocks == 0:
                    self._exchange.__exit__(None, None, None)

    def _take(self, message: Any, *rest: Any, **more: Any) -> None:
        found = getattr(self._thread, "found", None)
        if found is None:
            self._show(message, *rest, **more)
        else:
            found.append(message)


collected_warnings = _WarningsByThread().collected
"""A block in which this thread's warnings are not shown; gives the list of them."""
