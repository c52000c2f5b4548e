"""Command-line options made from a job's settings, so that YAML, options and help never differ."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ghost_ray.cli.completion import completer
from ghost_ray.cli.wording import flag
from ghost_ray.config import Metavar, Positional, is_nested

# Options that say how the job runs rather than what it does; they are last in --help.
_LAST = ("verify", "overwrite", "address", "num_cpus", "wait_for_nodes")


def parameters(kind: type[BaseModel]) -> list[click.Parameter]:
    """Click parameters for every field of ``kind``, arguments first.

    No parameter has a default: an option that is not given must not override a config file. Values stay strings where
    pydantic checks them better than click. Nested settings are only possible in a file.
    """
    fields = [field for field in kind.model_fields.items() if not is_nested(field[1])]
    arguments = [_argument(name, info) for name, info in fields if _is_positional(info)]
    named = [(name, info) for name, info in fields if not _is_positional(info)]
    # What must be given comes first.
    named.sort(key=lambda field: (_LAST.index(field[0]) + 1 if field[0] in _LAST else 0, not field[1].is_required()))
    return [*arguments, *(_option(kind, name, info) for name, info in named)]


def shared_parameters() -> list[click.Parameter]:
    """Options every job has beside its own."""
    return [
        click.Option(["--config", "config_file"], metavar="FILE", help="YAML file with settings; options override it."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print the result as one JSON object on stdout."),
        click.Option(["--quiet", "-q"], is_flag=True, help="Print the result alone, without progress."),
    ]


def _is_positional(info: FieldInfo) -> bool:
    return any(isinstance(mark, Positional) for mark in info.metadata)


def _argument(name: str, info: FieldInfo) -> click.Argument:
    many = info.annotation is not str
    word = _metavar(info, name) + ("..." if many else "")
    # Not required by click: a config file may give it. If nothing does, pydantic reports it.
    return click.Argument(
        [name],
        required=False,
        nargs=-1 if many else 1,
        metavar=word if info.is_required() else f"[{word}]",
        shell_complete=completer(info, []),
    )


def _option(kind: type[BaseModel], name: str, info: FieldInfo) -> click.Option:
    word = flag(kind, name)
    text = _help(info)
    if info.annotation is bool:
        if info.default is True:
            return click.Option([f"{word}/--no-{word[2:]}", name], default=None, help=text)
        return click.Option([word, name], is_flag=True, flag_value=True, default=None, help=text)
    return click.Option(
        [word, name],
        multiple=_is_many(info),
        metavar=_metavar(info, name),
        help=text,
        shell_complete=completer(info, _choices(info.annotation)),
    )


def _is_many(info: FieldInfo) -> bool:
    return get_origin(info.annotation) in (dict, tuple)


def _metavar(info: FieldInfo, name: str) -> str:
    for mark in info.metadata:
        if isinstance(mark, Metavar):
            return mark.name
    choices = _choices(info.annotation)
    if choices:
        return "|".join(choices)
    kinds = {int: "N", float: "X"}
    return next((kinds[k] for k in _members(info.annotation) if k in kinds), "TEXT")


def _choices(annotation: Any) -> list[str]:
    return [str(c) for k in _members(annotation) if get_origin(k) is Literal for c in get_args(k)]


def _members(annotation: Any) -> tuple[Any, ...]:
    members = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return tuple(get_args(member)[0] if get_origin(member) is Annotated else member for member in members)


def _help(info: FieldInfo) -> str:
    text = info.description or ""
    if info.is_required():
        return f"{text}  [required]"
    if info.default is None or isinstance(info.default, bool | dict) or info.default_factory is not None:
        return text
    default = ",".join(info.default) if isinstance(info.default, tuple) else info.default
    return f"{text}  [default: {default}]"


def given(parameters: dict[str, Any]) -> dict[str, Any]:
    """What the user said, without the options left out."""
    return {name: value for name, value in parameters.items() if value not in (None, ())}
