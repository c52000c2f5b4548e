"""From a YAML file and options to validated settings, or one line that says what is wrong."""

from __future__ import annotations

import os
import re
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ghost_ray.config.settings import JobConfig
from ghost_ray.errors import InputError, nearest, one_line

_MAX_CONFIG_BYTES = 1 << 20
_MAX_YAML_VALUES = 200_000  # with every alias written out
_MAX_YAML_DEPTH = 64
_CORE_SCHEMA = {
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "[-+]?(0|[1-9][0-9]{0,29})|0x[0-9a-fA-F]{1,30}",
    "float": r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "merge": "<<",
}
C = TypeVar("C", bound=JobConfig)


class CoreLoader(yaml.SafeLoader):
    """The core schema of YAML 1.2. PyYAML's own reads ``1:8`` as a number of base 60 and ``no`` as false."""

    yaml_implicit_resolvers: dict[Any, Any] = {
        None: [(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{words})$")) for tag, words in _CORE_SCHEMA.items()]
    }


def parse_yaml(text: str) -> Any:
    """The one document in ``text``: plain values of the core schema, and a bounded number of them.

    Raises
    ------
    ValueError
        Saying in one line why it cannot be read.
    """
    try:
        loader = CoreLoader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _count_values(root, {}, 0)
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (AttributeError, LookupError, TypeError) as error:
        # A value that is not of the type its tag says, `!!timestamp x`: PyYAML does not check.
        raise ValueError(f"holds a value that does not fit its tag ({error})") from None


_TOO_DEEP = f"is nested more than {_MAX_YAML_DEPTH} deep"


def _count_values(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    """Values in ``node`` with its aliases written out; ValueError if they are too many, or a key is repeated.

    PyYAML takes the last of repeated keys without a word, and lets a page of aliases expand into gigabytes.
    """
    if depth > _MAX_YAML_DEPTH:  # also stops an alias to an enclosing node
        raise ValueError(_TOO_DEEP)
    if id(node) not in known:
        children: list[yaml.Node] = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            _refuse_repeated([key for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
            children = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_count_values(child, known, depth + 1) for child in children)
        if known[id(node)] > _MAX_YAML_VALUES:
            raise ValueError(f"holds more than {_MAX_YAML_VALUES:,} values, with its aliases written out")
    return known[id(node)]


def _refuse_repeated(keys: list[yaml.ScalarNode]) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key in keys:
        line, name = key.start_mark.line + 1, (key.tag, key.value)
        if name in lines:
            raise ValueError(f"line {line}: the key {key.value!r} was given before, in line {lines[name]}")
        lines[name] = line


def load_yaml(path: str, field: str = "config") -> dict[str, Any]:
    """A YAML file as a mapping, loaded safely."""
    try:
        if os.path.getsize(path) > _MAX_CONFIG_BYTES:
            raise ValueError(f"is larger than {_MAX_CONFIG_BYTES >> 20} MiB")
        with open(path, encoding="utf-8") as handle:
            content = parse_yaml(handle.read())
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
    value = error["input"]
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else value  # of an option that may be repeated
    return InputError(field, shown, message[:1].lower() + message[1:])
