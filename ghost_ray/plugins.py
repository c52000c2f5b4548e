"""What other packages add: methods, image formats and networks, by entry point or as ``package.module:name``.

A package says in its ``pyproject.toml``::

    [project.entry-points."ghost_ray.methods"]
    norm = "its_package.scores:Norm"

A plug-in that cannot be loaded does not affect others: it is listed with the reason, and refused when it is named.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, get_args

from ghost_ray.errors import one_line

Kind = Literal["methods", "formats", "networks"]
_IMPORTABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class Plugin:
    """An entry point of an installed package."""

    name: str
    package: str
    entry: EntryPoint

    def load(self) -> Any:
        """The object it names; whatever that module raises is raised."""
        return self.entry.load()


def plugins(kind: Kind) -> list[Plugin]:
    """The plug-ins of a kind in the environment, by name."""
    assert kind in get_args(Kind)
    found = {
        entry.name: Plugin(entry.name, entry.dist.name if entry.dist is not None else "", entry)
        for entry in entry_points(group=f"ghost_ray.{kind}")
    }
    return [found[name] for name in sorted(found)]


def load_plugins(kind: Kind, accept: Callable[[str, Any], None]) -> dict[str, str]:
    """Pass every plug-in of a kind to ``accept(name, object)``; returns why some were refused, by name."""
    refused = {}
    for plugin in plugins(kind):
        try:
            accept(plugin.name, plugin.load())
        except Exception as error:  # another package's code may raise anything
            reason = f"{type(error).__name__}: {one_line(error, 160)}"
            refused[plugin.name] = f"of the package {plugin.package} cannot be used ({reason})"
    return refused


def is_importable(name: str) -> bool:
    """Whether a name is of the form ``package.module:name``."""
    return _IMPORTABLE.fullmatch(name) is not None


def import_object(name: str) -> Any:
    """The object that ``package.module:name`` stands for; whatever importing it raises is raised."""
    module, _, attribute = name.partition(":")
    # `python -m` and console scripts do not both put the working folder on the path; a user's file is there.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found
