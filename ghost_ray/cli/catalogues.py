"""What ``--help`` lists from the catalogues of other packages, which are imported only for help."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from ghost_ray.config import Catalogue
from ghost_ray.plugins import plugins

Rows = list[tuple[str, str]]


def listings(settings: type[BaseModel]) -> Iterator[tuple[str, Rows]]:
    """Title and lines of each catalogue that a field of the settings takes its values from."""
    for info in settings.model_fields.values():
        for mark in info.metadata:
            if isinstance(mark, Catalogue):
                rows = _ROWS[mark.name]()
                if rows:
                    yield mark.name.capitalize(), rows


def names_in(catalogue: str) -> list[str]:
    """The complete names in a catalogue, for shell completion."""
    return [name for name, _ in _ROWS[catalogue]() if ":" not in name]


def _formats() -> Rows:
    from ghost_ray.sources import formats, refused_plugins

    return [*((entry.name, entry.text) for entry in formats()), *refused_plugins().items()]


def _methods() -> Rows:
    from ghost_ray.scorers import names, options_of, refused_plugins, scorer_class, title_of

    rows = []
    for name in names():
        kind = scorer_class(name)
        facts = [title_of(name), *map(str, options_of(kind)), *(["needs the linear head"] if kind.needs_head else [])]
        rows.append((name, ", ".join(facts)))
    rows.append(("pytorch-ood:NAME", "any detector of that library that works on logits or features"))
    rows.append(("package.module:Class", "a method of your own"))
    return [*rows, *refused_plugins().items()]


def _networks() -> Rows:
    return [(plugin.name, f"of the package {plugin.package}") for plugin in plugins("networks")]


_ROWS = {"formats": _formats, "methods": _methods, "networks": _networks}
