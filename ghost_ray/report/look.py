"""Colours, dashes and markers: Okabe and Ito's palette, with a second sign beside every colour."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9"
# "ink" and "quiet" are the page's own colours, dark on light and light on dark.
INK, QUIET = "ink", "quiet"
# Seven colours, six dashes: the first 42 methods look different, and GHOST is always the first.
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY, INK)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")


@dataclass(frozen=True)
class Look:
    """How a series is drawn; names are Plotly's."""

    colour: str
    dash: str = "solid"
    symbol: str = "circle"
    width: float = 2.0


NAMED = {
    "main": Look(BLUE),
    "muted": Look(QUIET),
    "reference": Look(INK, dash="dash", width=1.2),
    "known": Look(GREEN, symbol="circle"),
    "unknown": Look(VERMILION, dash="dash", symbol="x"),
}


def look_of(style: int | str) -> Look:
    """The look of a numbered method or of a named role."""
    if isinstance(style, str):
        return NAMED[style]
    return Look(COLOURS[style % len(COLOURS)], DASHES[style % len(DASHES)], SYMBOLS[style % len(SYMBOLS)])


def as_json() -> dict[str, Any]:
    """The same for the page's script."""
    return {
        "colours": COLOURS,
        "dashes": DASHES,
        "symbols": SYMBOLS,
        "named": {name: asdict(look) for name, look in NAMED.items()},
    }
