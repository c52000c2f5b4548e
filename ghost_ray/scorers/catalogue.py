"""Methods by name and with options: ``knn``, ``knn:k=10``, ``evm:tail=50:cover=0.8``, ``pytorch-ood:GEN:gamma=0.1``.

A user's own methods are ``package.module:Class``, or are registered by the entry points of an installed package.
"""

from __future__ import annotations

import inspect
import math
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ghost_ray.errors import nearest, one_line
from ghost_ray.plugins import import_object, is_importable, load_plugins
from ghost_ray.scorers.scorer import Scorer

PYTORCH_OOD = "pytorch-ood:"
# Order of every table and of ``all``; other methods come after these.
ORDER = (
    *("ghost", "ghost-gpd", "ghost-full", "msp", "maxlogit", "energy", "knn", "nnguide", "react", "scale"),
    *("openmax", "evm", "vim", "mds", "rmds"),
)

_PLAIN = r"[\w.+-]+"  # score files are named by method and options
_scorers: dict[str, type[Scorer]] = {}
_refused: dict[str, str] = {}  # plug-ins that cannot be used, and why
S = TypeVar("S", bound=type[Scorer])


@dataclass(frozen=True)
class Option:
    """A parameter of a method's constructor."""

    name: str
    default: Any
    help: str  # from the class's docstring

    def __str__(self) -> str:
        shown = f"{self.default:g}" if isinstance(self.default, float) else str(self.default).lower()
        return f"{self.name}={shown}"


def register(scorer: S) -> S:
    """Class decorator: register a scorer under its ``name``."""
    if not re.fullmatch(_PLAIN, scorer.name):
        raise ValueError(f"{scorer.name!r} is not a plain name (letters, digits, _ . + -)")
    taken = _scorers.get(scorer.name)
    if taken is not None:
        raise ValueError(f"two scorers are named {scorer.name!r}: {taken.__qualname__}, {scorer.__qualname__}")
    _scorers[scorer.name] = scorer
    return scorer


def unregister(name: str) -> None:
    """Forget a scorer."""
    del _scorers[name]


def register_plugins() -> None:
    """Register the methods of installed packages, which name them as their classes do."""

    def accept(name: str, scorer: Any) -> None:
        _require_scorer(scorer)
        if getattr(scorer, "name", name) != name:
            raise ValueError(f"the entry point is named {name!r}, its class {scorer.name!r}")
        scorer.name = name
        if _scorers.get(name) is not scorer:  # its module may have registered it already
            register(scorer)

    _refused.update(load_plugins("methods", accept))


def refused_plugins() -> dict[str, str]:
    """The methods of installed packages that cannot be used: name and reason."""
    return dict(_refused)


def _require_scorer(kind: Any) -> None:
    if not (inspect.isclass(kind) and issubclass(kind, Scorer)):
        shown = kind.__name__ if inspect.isclass(kind) else f"a {type(kind).__name__}"
        raise ValueError(f"{shown} is not a subclass of ghost_ray.scorers.Scorer")
    missing = sorted(getattr(kind, "__abstractmethods__", ()))
    if missing:
        raise ValueError(f"{kind.__name__} has no method {missing[0]}")


def names() -> list[str]:
    """All registered names, in the order of tables."""
    return sorted(_scorers, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


def scorer_class(method: str) -> type[Scorer]:
    """The class of a method, with or without options; an unknown name raises an error with the nearest one."""
    name, _ = _split(method)
    if name.startswith(PYTORCH_OOD):
        from ghost_ray.scorers.pytorch_ood import PytorchOOD

        return PytorchOOD
    if name not in _scorers:
        before, _, rest = name.partition(":")
        if rest and before in _scorers:
            raise ValueError(f"{before}: {rest!r} is not of the form OPTION=VALUE")
        if is_importable(name):
            return _imported(name)
        if name in _refused:
            raise ValueError(f"the method {name!r} {_refused[name]}")
        close = nearest(name, _scorers)
        known = ", ".join(names())
        raise ValueError(
            f"unknown method {name!r}; "
            + (f"{close}; " if close else "")
            + f"known: {known}, {PYTORCH_OOD}NAME, package.module:Class"
        )
    return _scorers[name]


def _imported(name: str) -> type[Scorer]:
    try:
        kind: type[Scorer] = import_object(name)
    except Exception as error:  # a user's own code may raise anything
        raise ValueError(f"{name} cannot be imported: {type(error).__name__}: {one_line(error, 160)}") from error
    _require_scorer(kind)
    return kind


def create(method: str, **options: Any) -> Scorer:
    """A scorer by name, e.g. ``create("knn", k=10)``, which is ``create("knn:k=10")``.

    An option in the name overrides one that is passed separately. The scorer has the name that it was created by, so
    that two of one kind can be distinguished.
    """
    name, given = _split(method)
    kind = scorer_class(method)
    options |= _values(name, kind, given)
    if name.startswith(PYTORCH_OOD):
        scorer = kind(name.removeprefix(PYTORCH_OOD), **options)  # type: ignore[call-arg]
    else:
        _require_options(name, kind, options)
        try:
            scorer = kind(**options)
        except TypeError as error:
            raise ValueError(f"{name}: {error}") from error
    scorer.name = method
    return scorer


def title_of(method: str) -> str:
    """A method as papers write it, with its options: ``KNN (k=10)``. A name that is not known stays as it is."""
    name, given = _split(method)
    # A class without its own title must not use that of its base class. A method that would have to be imported is
    # shown by its name: reading results must not run foreign code.
    called = name.rpartition(":")[2] if is_importable(name) else name.removeprefix(PYTORCH_OOD)
    shown = vars(_scorers[name]).get("title", name) if name in _scorers else called
    return f"{shown} ({', '.join(given)})" if given else shown


def is_rival(method: str, result: Mapping[str, object]) -> bool:
    """Whether a method is compared with GHOST, rather than being GHOST or a variant of it.

    Its scorer says so where it is measured, and every ``result`` in metrics.json carries it. 0.1 wrote nothing; its
    variants are known by their names.
    """
    said = result.get("rival")
    return said if isinstance(said, bool) else _split(method)[0] not in ("ghost", "ghost-gpd", "ghost-full")


def options_of(kind: type[Scorer]) -> list[Option]:
    """The options of a method: name and default from its constructor, their meaning from its docstring."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?:\n\n\S[^\n]*\n-+\n|\Z)", inspect.getdoc(kind) or "", re.S | re.M)
    entries = re.findall(r"^(\w+) : [^\n]*\n((?:[ ]+[^\n]*(?:\n|\Z))*)", section[1] if section else "", re.M)
    described = {name: " ".join(text.split()) for name, text in entries}
    return [
        Option(parameter.name, parameter.default, described.get(parameter.name, ""))
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.default is not parameter.empty
    ]


def _split(method: str) -> tuple[str, list[str]]:
    """``knn:k=10`` → ``knn`` and its options as written, ``["k=10"]``."""
    parts = method.split(":")
    first = next((i for i, part in enumerate(parts) if "=" in part), len(parts))
    return ":".join(parts[:first]), parts[first:]


def _values(name: str, kind: type[Scorer], given: list[str]) -> dict[str, Any]:
    """Options from text, each as the type that the constructor requires."""
    hints = get_type_hints(kind.__init__)
    values: dict[str, Any] = {}
    for part in given:
        option, sign, text = part.partition("=")
        if not (sign and option and re.fullmatch(_PLAIN, text)):
            raise ValueError(f"{name}: {part!r} is not of the form OPTION=VALUE, of letters, digits, _ . + -")
        if option in values:
            raise ValueError(f"{name}: the option {option!r} is given twice")
        values[option] = text
    _require_options(name, kind, values)
    return {option: _value(name, option, text, hints.get(option, Any)) for option, text in values.items()}


def _require_options(name: str, kind: type[Scorer], options: dict[str, Any]) -> None:
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in inspect.signature(kind).parameters.values()):
        return  # it passes them on, and reports wrong ones itself
    known = {option.name: option for option in options_of(kind)}
    for option in options:
        if option not in known:
            close = nearest(option, known)
            listed = f"options: {', '.join(map(str, known.values()))}" if known else "it has none"
            raise ValueError(f"{name}: there is no option {option!r}; " + (f"{close}; " if close else "") + listed)


def _value(name: str, option: str, text: str, annotation: Any) -> Any:
    wanted = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    if annotation is Any:
        wanted = (types.NoneType, bool, int, float, str)
    for kind in wanted:
        try:
            return _READ[kind](text)
        except (KeyError, ValueError):
            continue
    words = " or ".join(_WORDS.get(kind, str(kind)) for kind in wanted)
    raise ValueError(f"{name}: {option} must be {words}, got {text!r}")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


_READ: dict[Any, Any] = {
    types.NoneType: lambda text: {"none": None}[text.lower()],
    bool: lambda text: {"true": True, "false": False}[text.lower()],
    int: int,
    float: _finite,
    str: str,
}
_WORDS = {types.NoneType: "none", bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
