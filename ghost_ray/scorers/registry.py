"""Scorers by name."""

from __future__ import annotations

from typing import Any, TypeVar

from ghost_ray.errors import nearest
from ghost_ray.scorers.base import Scorer

PYTORCH_OOD = "pytorch-ood:"

_scorers: dict[str, type[Scorer]] = {}
S = TypeVar("S", bound=type[Scorer])


def register(scorer: S) -> S:
    """Class decorator: make a scorer known under its ``name``."""
    taken = _scorers.get(scorer.name)
    if taken is not None:
        raise ValueError(f"two scorers are named {scorer.name!r}: {taken.__qualname__}, {scorer.__qualname__}")
    _scorers[scorer.name] = scorer
    return scorer


def names() -> list[str]:
    """All registered names, in the order of METHODS."""
    return list(_scorers)


def scorer_class(name: str) -> type[Scorer]:
    """The class registered under a name; the nearest name is said where there is none."""
    if name not in _scorers:
        close = nearest(name, _scorers)
        known = ", ".join(_scorers)
        raise ValueError(
            f"unknown method {name!r}; " + (f"{close}; " if close else "") + f"known: {known}, {PYTORCH_OOD}NAME"
        )
    return _scorers[name]


def create(name: str, **options: Any) -> Scorer:
    """A scorer by name, e.g. ``create("knn", k=10)`` or ``create("pytorch-ood:GEN", gamma=0.1)``."""
    if name.startswith(PYTORCH_OOD):
        from ghost_ray.scorers.pytorch_ood import PytorchOOD

        return PytorchOOD(name.removeprefix(PYTORCH_OOD), **options)
    try:
        return scorer_class(name)(**options)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from error
