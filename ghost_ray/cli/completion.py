"""Shell completions of an option's value: entries of a catalogue, allowed words, or files."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem
from pydantic.fields import FieldInfo

from ghost_ray.cli.catalogues import names_in
from ghost_ray.config import Catalogue

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completer(info: FieldInfo, choices: list[str]) -> Completer:
    """The completions of a field's value; of words with commas between them, those of the last."""
    catalogue = next((mark.name for mark in info.metadata if isinstance(mark, Catalogue)), None)

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        before, comma, word = begun.rpartition(",")
        known = choices if catalogue is None else names_in(catalogue)
        if known:
            return [CompletionItem(f"{before}{comma}{name}") for name in known if name.startswith(word)]
        takes_text = info.annotation not in (int, float)
        return [CompletionItem(begun, type="file")] if takes_text else []

    return complete
