"""Results as people read them on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console

Result = dict[str, Any]
_RENDERERS: dict[str, Callable[[Result, Console], None]] = {}


def renders(command: str) -> Callable[[Callable[[Result, Console], None]], Callable[[Result, Console], None]]:
    """Register the function that shows a command's result."""

    def register(function: Callable[[Result, Console], None]) -> Callable[[Result, Console], None]:
        _RENDERERS[command] = function
        return function

    return register


def render(command: str, result: Result) -> None:
    """Show a result on stdout."""
    _RENDERERS[command](result, Console(highlight=False, soft_wrap=True))


@renders("import")
def _import(result: Result, console: Console) -> None:
    accuracy = "" if result["accuracy"] is None else f", closed-set accuracy {result['accuracy']:.2%}"
    head = "with" if result["head"] else "without"
    console.print(
        f"{result['rows']:,} rows (K={result['classes']}, D={result['dimensions']}, {head} a linear head{accuracy}) "
        f"→ [bold]{result['store']}[/]"
    )
