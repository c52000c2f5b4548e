"""Who changes a registry: the user, the machine, and the job if there is one."""

from __future__ import annotations

import getpass
import json
import os
import socket
from typing import TypedDict

from ghost_ray.errors import one_line


class Who(TypedDict):
    """As a move of the pointer records it."""

    user: str | None
    host: str
    job: str


def job_id() -> str:
    """The submission id inside a Ray job, else the process."""
    try:
        submitted = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
        return str(submitted["metadata"]["job_submission_id"])
    except (ValueError, KeyError, TypeError):
        return f"process-{os.getpid()}"


def who() -> Who:
    """The one who runs this process."""
    try:
        user = one_line(getpass.getuser(), 80)
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        user = str(os.getuid())
    return {"user": user, "host": one_line(socket.gethostname(), 80), "job": one_line(job_id(), 80)}
