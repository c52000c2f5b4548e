"""Why a place could not be read or written: absent, forbidden, in another region, unreachable or slow.

pyarrow reports every problem with a store as an OSError with a text. Errors that the user must fix become an InputError
(exit 2), temporary ones an Unreachable (exit 1), each with its own advice. A sixth cause, damage, is found in the files
themselves (`ghost_ray.files.digests`).
"""

from __future__ import annotations

import contextlib
import errno
import re
import socket
from collections.abc import Iterator
from typing import Literal

from ghost_ray.errors import GhostRayError, InputError, JobFailed, Unreachable, one_line, redact

Cause = Literal["absent", "forbidden", "wrong region", "unreachable", "slow"]

# How S3, GCS, Azure and Hugging Face name their refusals, in the order in which they are checked: a redirect also has a
# status, and a timeout is also a connection error.
_WORDS: dict[Cause, re.Pattern[str]] = {
    "wrong region": re.compile(
        r"HTTP status 30[178]|PermanentRedirect|TemporaryRedirect|(?i:authorization_?header_?malformed)"
        r"|configured region is|incorrectly configured region"
    ),
    "forbidden": re.compile(
        r"ACCESS_DENIED|HTTP status 40[13]|(?i:invalid_?access_?key_?id|signature_?does_?not_?match|expired_?token)"
        r"|UNRECOGNIZED_CLIENT|PERMISSION_DENIED|UNAUTHENTICATED|AuthorizationFailure|AuthenticationFailed"
        r"|40[13] Client Error"
    ),
    "absent": re.compile(
        r"NO_SUCH_(?:BUCKET|KEY)|RESOURCE_NOT_FOUND|HTTP status 404|NOT_FOUND|ContainerNotFound|Bucket '.*' not found"
        r"|404 Client Error"
    ),
    "slow": re.compile(
        r"curlCode: 28\b|SLOW_DOWN|THROTTL|(?:HTTP status|status code:) (?:429|503)|SERVICE_UNAVAILABLE|REQUEST_TIMEOUT"
        r"|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|ServerBusy|(?:429|503) (?:Client|Server) Error|timed out"
    ),
    "unreachable": re.compile(
        r"NETWORK_CONNECTION|curlCode|(?:HTTP status|status code:) 5\d\d|INTERNAL_FAILURE|UNAVAILABLE"
        r"|Connection (?:refused|reset)|error sending request|5\d\d Server Error"
    ),
}
_NUMBERS: dict[int, Cause] = {
    errno.ETIMEDOUT: "slow",
    errno.ESTALE: "unreachable",
    errno.EHOSTDOWN: "unreachable",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENOTCONN: "unreachable",
}
_REGION = re.compile(r"located in '([\w-]+)'")
_AWS_MESSAGE = re.compile(
    r"AWS Error (?:UNKNOWN \()?(HTTP status \d+|[A-Z_]+)\)? (during \w+) operation(?:: (?!No response)(.*))?"
)


def cause_of(error: OSError) -> Cause | None:
    """Which of the five causes it is; None for other errors, such as a full disk."""
    if isinstance(error, FileNotFoundError):
        return "absent"
    if isinstance(error, PermissionError):
        return "forbidden"
    if isinstance(error, TimeoutError):
        return "slow"
    if isinstance(error, ConnectionError):
        return "unreachable"
    if error.errno in _NUMBERS:
        return _NUMBERS[error.errno]
    return next((cause for cause, words in _WORDS.items() if words.search(str(error))), None)


def explained(error: OSError, field: str, uri: str) -> GhostRayError:
    """What to raise instead of ``error``, which occurred at ``uri``, the value of the setting ``field``."""
    cause = cause_of(error)
    if isinstance(error, NotADirectoryError):
        problem = "cannot be written or read: a part of this path is not a folder"
        return InputError(field, redact(uri), problem, "name a place in a folder")
    if error.errno == errno.ENAMETOOLONG:
        return InputError(field, redact(uri), "is too long a name for its file system", "choose a shorter one")
    if error.errno == errno.EROFS:
        problem = f"cannot be written: {one_line(error.strerror)}"
        return InputError(field, redact(uri), problem, "choose a folder that you can write to")
    text = str(error)
    found = _AWS_MESSAGE.search(text)
    detail = one_line(" ".join(filter(None, found.groups())) if found else text, 160)
    shown = redact(uri)
    if cause == "absent":
        return InputError(field, shown, "does not exist", "name an existing place")
    if cause == "forbidden":
        advice = "check the credentials and what they allow: reading, listing and, for results, writing"
        return InputError(field, shown, f"access is denied ({detail})", advice)
    if cause == "wrong region":
        region = _REGION.search(text)
        where = region[1] if region else "NAME"
        advice = f"set AWS_DEFAULT_REGION={where}, or end the place in ?region={where}"
        return InputError(field, shown, f"the bucket is in another region ({detail})", advice)
    if cause == "unreachable":
        return Unreachable(f"{field} '{shown}': the store cannot be reached ({detail}) — {_LATER}")
    if cause == "slow":
        return Unreachable(f"{field} '{shown}': the store answers too slowly ({detail}) — {_LATER}")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        host = socket.gethostname()
        advice = "free space there, then run the same command again: finished work is kept"
        return JobFailed(f"{field} '{shown}': no space is left on the disk of {host} ({detail}) — {advice}")
    return JobFailed(f"{one_line(error)} — {_LATER}")


_LATER = "no partial result was published; fix this, then run the same command again"


@contextlib.contextmanager
def reaching(uri: str, field: str) -> Iterator[None]:
    """Explain every OSError of the block as an error at ``uri``."""
    try:
        yield
    except OSError as error:
        raise explained(error, field, uri) from None
