"""Untrusted YAML: the core schema of YAML 1.2, plain values only, and a bounded number of them.

PyYAML's own safe loader builds no objects, but reads ``1:8`` as a number of base 60 and ``no`` as false, lets a page of
aliases expand into gigabytes, and raises an AttributeError for some malformed values.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_MAX_NODES = 200_000  # with every alias written out
_MAX_DEPTH = 64
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[Any, Any] = {}


_SCHEMA = {
    "null": ("~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": ("true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": ("[-+]?(0|[1-9][0-9]{0,29})|0x[0-9a-fA-F]{1,30}", list("-+0123456789")),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    "merge": ("<<", ["<"]),
}
for _name, (_pattern, _first) in _SCHEMA.items():
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern})$"), _first)


def load(text: str) -> Any:
    """The one document in ``text``.

    Raises
    ------
    ValueError
        Saying in one line why it cannot be read.
    """
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            _unfolded(root, {}, 0)
            return loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (AttributeError, LookupError, TypeError) as error:
        # A value that is not of the type its tag says, `!!timestamp x`: PyYAML does not check.
        raise ValueError(f"holds a value that does not fit its tag ({error})") from None


def _refuse_repeated(mapping: yaml.MappingNode) -> None:
    """YAML forbids a key that is given twice; PyYAML takes the last one without a word."""
    lines: dict[tuple[str, str], int] = {}
    for key, _ in mapping.value:
        if isinstance(key, yaml.ScalarNode):
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                raise ValueError(f"line {line}: the key {key.value!r} was given before, in line {lines[name]}")
            lines[name] = line


_TOO_DEEP = f"is nested more than {_MAX_DEPTH} deep"


def _unfolded(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    """Number of nodes below ``node`` with its aliases written out; ValueError if they are absurdly many."""
    if depth > _MAX_DEPTH:  # also stops an alias to an enclosing node
        raise ValueError(_TOO_DEEP)
    if id(node) not in known:
        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.MappingNode):
            _refuse_repeated(node)
            children = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_unfolded(child, known, depth + 1) for child in children)
        if known[id(node)] > _MAX_NODES:
            raise ValueError(f"holds more than {_MAX_NODES:,} values, with its aliases written out")
    return known[id(node)]
