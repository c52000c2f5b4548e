"""From a YAML file and options to validated settings, or one line that says what is wrong."""

from __future__ import annotations

import os
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ghost_ray.config import safe_yaml
from ghost_ray.config.settings import JobConfig
from ghost_ray.errors import InputError, nearest, one_line

_MAX_CONFIG_BYTES = 1 << 20
C = TypeVar("C", bound=JobConfig)


def load_yaml(path: str, field: str = "config") -> dict[str, Any]:
    """A YAML file as a mapping, loaded safely."""
    try:
        if os.path.getsize(path) > _MAX_CONFIG_BYTES:
            raise ValueError(f"is larger than {_MAX_CONFIG_BYTES >> 20} MiB")
        with open(path, encoding="utf-8") as handle:
            content = safe_yaml.load(handle.read())
    except FileNotFoundError:
        raise InputError(field, path, "does not exist", "name a YAML file") from None
    except (OSError, ValueError) as error:
        raise InputError(field, path, f"cannot be read: {one_line(error)}", "write it as YAML `key: value`") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(field, path, "is not a YAML mapping", "write it as `key: value` lines")
    return content


def build(kind: type[C], options: dict[str, Any], config_file: str | None = None) -> C:
    """The validated settings from a file's content and the options that override it.

    Raises
    ------
    InputError
        For the first thing that is wrong: an unknown key with the nearest right one, or a value with what is allowed.
    """
    content = load_yaml(config_file) if config_file else {}
    values = {_attribute(key): value for key, value in content.items()} | options
    for key in values:
        if key not in kind.model_fields:
            hint = nearest(key, kind.model_fields) or "allowed: " + ", ".join(kind.model_fields)
            raise InputError("config", config_file or key, f"has the unknown key {key!r}", hint)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise _explain(kind, error.errors()[0]) from None


def _attribute(key: str) -> str:
    return key.replace("-", "_")


def _keys_at(kind: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The keys allowed where a path through nested settings ends."""
    for step in path[:-1]:
        info = kind.model_fields.get(str(step))
        if info is None:
            continue  # the name in a mapping of sections
        members = get_args(info.annotation) or (info.annotation,)
        kind = next((m for m in members if isinstance(m, type) and issubclass(m, BaseModel)), kind)
    return list(kind.model_fields)


def is_nested(info: FieldInfo) -> bool:
    """Whether a field is a nested section, which is only possible in a file and not on the command line."""
    members = get_args(info.annotation) or (info.annotation,)
    return any(isinstance(member, type) and issubclass(member, BaseModel) for member in members)


def _explain(kind: type[BaseModel], error: Any) -> InputError:
    path = error["loc"]
    message = error["msg"].removeprefix("Value error, ")
    if not path:
        return InputError("options", kind.__name__.removesuffix("Config").lower(), message)
    name = str(path[0])
    nested = name in kind.model_fields and is_nested(kind.model_fields[name])
    field = ".".join(map(str, path)) if nested else name
    if error["type"] == "missing":
        return InputError(field, "", "is needed and was not given")
    if error["type"] == "extra_forbidden":
        return InputError(
            "config", ".".join(map(str, path)), "is an unknown key", nearest(str(path[-1]), _keys_at(kind, path))
        )
    given = error["input"]
    shown = " ".join(map(str, given)) if isinstance(given, tuple) else given  # a tuple: it may be given several times
    return InputError(field, shown, message[:1].lower() + message[1:])
