"""Colours, dashes and markers: Okabe and Ito's palette, with a second sign beside every colour."""

from __future__ import annotations

from dataclasses import dataclass

# On paper and on the light page Okabe and Ito's own colours; lighter ones on the dark page.
PALETTE = {
    "blue": ("#0072B2", "#4AA3DF"),
    "orange": ("#E69F00", "#F0B429"),
    "green": ("#009E73", "#2FC299"),
    "purple": ("#CC79A7", "#E39CC4"),
    "vermilion": ("#D55E00", "#F47C3C"),
    "sky": ("#56B4E9", "#A5DBFF"),
}
# The page's own colours, dark on light and light on dark.
INK, QUIET = "ink", "quiet"
# Seven colours, six dashes: the first 42 methods look different, and GHOST is always the first.
COLOURS = (*PALETTE, INK)
# Lengths of strokes and gaps in widths of the line.
DASHES: tuple[tuple[float, ...], ...] = ((), (4, 2), (1, 1.5), (4, 1.5, 1, 1.5), (7, 2), (7, 1.5, 1, 1.5))


@dataclass(frozen=True)
class Look:
    """How a series is drawn: its colour by name, its dash in widths of the line."""

    colour: str
    dash: tuple[float, ...] = ()
    symbol: str = "circle"
    width: float = 2.0


NAMED = {
    "main": Look("blue"),
    "muted": Look(QUIET),
    "reference": Look(INK, dash=(5, 3), width=1.2),
    "known": Look("green"),
    "unknown": Look("vermilion", dash=(4, 2), symbol="x"),
}


def look_of(style: int | str | Look) -> Look:
    """The look of a numbered method or of a named role; one that is given stays as it is."""
    if isinstance(style, Look):
        return style
    if isinstance(style, str):
        return NAMED[style]
    return Look(COLOURS[style % len(COLOURS)], DASHES[style % len(DASHES)])


def css_variables() -> str:
    """The palette for the page."""
    colours = " ".join(f"--{name}: light-dark({light}, {dark});" for name, (light, dark) in PALETTE.items())
    return f":root {{ {colours} }}\n"
