"""The library's messages in the words of the command line.

Inner packages name settings as Python callers write them: ``data`` as the field of an error, and `` `overwrite=True` ``
in its text. Here they become options.
"""

from __future__ import annotations

import re

from pydantic import BaseModel

from ghost_ray.config import Metavar, Positional
from ghost_ray.errors import GhostRayError, InputError

_SETTING = re.compile(r"`([a-z][a-z_]*)(?:=([^`]*))?`")


def flag(kind: type[BaseModel], field: str) -> str:
    """How a field is written on the command line: ``--max-n``, or ``STORE`` for an argument."""
    marks = kind.model_fields[field].metadata
    if any(isinstance(mark, Positional) for mark in marks):
        return next((mark.name for mark in marks if isinstance(mark, Metavar)), field.upper())
    return "--" + field.replace("_", "-")


def describe(error: GhostRayError, kind: type[BaseModel], others: set[str]) -> str:
    """An error as the user of a command reads it.

    Parameters
    ----------
    kind : type of settings
        Of the command that was run.
    others : set of str
        The names of the settings of all commands.
    """

    def option(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        if name not in kind.model_fields and name not in others:
            return match[0]
        word = flag(kind, name) if name in kind.model_fields else "--" + name.replace("_", "-")
        if value in (None, "True"):
            return word
        return f"--no-{word[2:]}" if value == "False" else f"{word} {value}"

    if not isinstance(error, InputError):
        return _SETTING.sub(option, str(error))
    field = {"config": "--config"}.get(error.field, error.field)
    if field in kind.model_fields:
        field = flag(kind, field)
    problem, hint = (_SETTING.sub(option, text) for text in (error.problem, error.hint))
    return str(InputError(field, error.value, problem, hint))
