"""The elements of a page: sections of charts, tables, a heat map and words, independent of HTML and matplotlib.

The page (`html`) and the figures for papers (`plots`) are drawn from the same objects, so they show the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from ghost_ray.report.look import Look, look_of

SeriesKind = Literal["line", "steps", "points", "bar", "band"]
# Numbers or words along a series.
Values = Sequence[Any] | np.ndarray
# Named styles differ from the numbered ones, which give each method its colour, dash and marker.
State = Literal["complete", "unfinished", "damaged"]
Style = int | Literal["main", "muted", "reference", "known", "unknown"] | Look
# Names in results may hold characters that no XML allows, or that turn the text around them.
_UNSHOWN = dict.fromkeys(
    [
        *(code for code in range(0xA0) if (code < 0x20 and chr(code) not in "\t\n\r") or code > 0x7E),
        *(0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
        *(*range(0xD800, 0xE000), 0xFFFE, 0xFFFF),
    ],
    "\ufffd",
)


def shown(text: str) -> str:
    """``text`` of a page or a figure, with a sign in the place of every character that cannot stand in one."""
    return text.translate(_UNSHOWN)


@dataclass(frozen=True)
class Series:
    """One curve, one row of bars or one cloud of points.

    ``low`` makes a band from ``low`` to ``y``; ``labels`` are shown on hover; ``text`` is shown beside the bars.
    """

    name: str
    x: Values
    y: Values
    kind: SeriesKind = "line"
    style: Style = "main"
    low: Values | None = None
    labels: Sequence[str] | None = None
    text: Sequence[str] | None = None

    def as_json(self) -> dict[str, Any]:
        look = look_of(self.style)
        found = {"name": self.name, "kind": self.kind, "colour": look.colour, "width": look.width}
        if look.dash:
            found["dash"] = list(look.dash)
        if self.kind == "points":
            found["symbol"] = look.symbol
        if self.style == "reference":
            found["reference"] = True
        found |= {"x": plain(self.x), "y": plain(self.y)}
        for name in ("low", "labels", "text"):
            value = getattr(self, name)
            if value is not None:
                found[name] = plain(value)
        return found


@dataclass(frozen=True)
class Axis:
    """An axis. ``percent`` shows shares as 25 %; ``one_minus`` labels the positions 1 − v with v, as for W near 1;
    ``ordinal`` positions are places in a sorted list and have no meaning themselves."""

    title: str
    scale: Literal["linear", "log", "category"] = "linear"
    range: tuple[float, float] | None = None
    percent: bool = False
    one_minus: bool = False
    ordinal: bool = False
    order: Sequence[str] | None = None  # of categories, from the origin on

    def as_json(self) -> dict[str, Any]:
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True)
class Chart:
    """A chart. ``says`` describes its content in words, for screen readers; ``caption`` says how to read it."""

    id: str
    title: str
    caption: str
    says: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    horizontal: bool = False  # horizontal bars
    height: int = 340
    # A chart with the same series as another (a logarithmic view) refers to it instead of repeating them.
    series_of: str | None = None
    # The full data of a figure, if the page has less; computed when the figure is drawn.
    whole_series: Callable[[], Sequence[Series]] | None = None

    kind = "chart"

    def as_json(self) -> dict[str, Any]:
        return {
            "x": self.x.as_json(),
            "y": self.y.as_json(),
            "horizontal": self.horizontal,
            "height": self.height,
            **({"series_of": self.series_of} if self.series_of else {"series": [s.as_json() for s in self.series]}),
        }


@dataclass(frozen=True)
class Cell:
    """A cell of a table: the text (or several, in lines), the number behind it, and whether it is the best."""

    text: str
    value: float | None = None
    best: bool = False
    lines: Sequence[Cell] = ()


@dataclass(frozen=True)
class Table:
    """A table; numeric columns are aligned by their digits and every column sorts."""

    id: str
    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    sorts: bool = True

    kind = "table"

    def is_numeric(self, column: int) -> bool:
        """Whether a column holds numbers, and so is aligned to the right."""
        return any(row[column].value is not None for row in self.rows)


@dataclass(frozen=True)
class HeatMap:
    """A picture of a large matrix, with the data to read values back from its colours on hover."""

    id: str
    title: str
    caption: str
    says: str
    png: bytes
    row_title: str
    column_title: str
    rows: Sequence[str]  # names in the order shown, one per row of the matrix
    columns: Sequence[int]  # likewise, original indices
    # Position in 0…1 along the edge, and the label there.
    row_ticks: Sequence[tuple[float, str]]
    column_ticks: Sequence[tuple[float, str]]
    ticks: Sequence[tuple[float, str]]  # of the colour bar, left the last colour
    palette: Sequence[tuple[int, int, int]]
    values: Sequence[float]  # what each colour of the palette stands for
    width: int
    height: int
    absent: str | None = None  # what the colour outside the scale means, where it occurs

    kind = "heatmap"

    @property
    def gradient(self) -> list[tuple[int, int, int]]:
        """Colours of the colour bar from left to right, evenly spaced, the first and the last among them."""
        last = len(self.values) - 1
        return [self.palette[last - round(step * last / 16)] for step in range(17)]

    def as_json(self) -> dict[str, Any]:
        return {
            "rows": list(self.rows),
            "columns": plain(self.columns),
            "palette": [list(colour) for colour in self.palette],
            "values": plain(self.values),
            "width": self.width,
            "height": self.height,
        }


@dataclass(frozen=True)
class ClassTable:
    """The per-class table: kept as columns of numbers, drawn, sorted and filtered in the page."""

    id: str
    title: str
    caption: str
    names: Sequence[str]
    count: Sequence[int]
    accuracy: Sequence[float | None]
    # unknown set → method → measure → one value per class
    measures: dict[str, dict[str, dict[str, list[float | None]]]]
    methods: Sequence[tuple[str, str]]  # name in ``measures``, name as shown; the others are compared with the first

    kind = "classes"

    def as_json(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "count": plain(self.count),
            "accuracy": plain(self.accuracy),
            "methods": [list(pair) for pair in self.methods],
            "measures": self.measures,
        }


@dataclass(frozen=True)
class Grid:
    """Charts under one heading, side by side or stacked."""

    id: str
    title: str
    charts: Sequence[Chart]
    intro: str = ""
    stacked: bool = False  # charts over one another, along the same x
    small: bool = False  # small charts without visible words, which remain for screen readers

    kind = "grid"


@dataclass(frozen=True)
class Tabs:
    """Alternatives of which one is visible at a time: one per unknown set."""

    id: str
    title: str
    intro: str
    panels: Sequence[tuple[str, Sequence[Grid]]]

    kind = "tabs"


@dataclass(frozen=True)
class Picture:
    """A sample: a small JPEG if its image can be read, its key, and a description."""

    jpeg: bytes | None
    key: str
    note: str


@dataclass(frozen=True)
class Pictured:
    """A sample, and another to compare it with."""

    picture: Picture
    beside: Picture | None = None


@dataclass(frozen=True)
class Gallery:
    """Pictures of samples, some with a companion."""

    id: str
    title: str
    caption: str
    items: Sequence[Pictured]

    kind = "gallery"


Block = Chart | Table | HeatMap | ClassTable | Grid | Tabs | Gallery


@dataclass(frozen=True)
class Number:
    """A key number, with its meaning and how to read it."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """One result on the page."""

    id: str
    kind: str
    title: str
    source: str
    verdict: str
    numbers: Sequence[Number] = ()
    blocks: Sequence[Block] = ()
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    network: str = ""

    @property
    def headings(self) -> list[Block]:
        """What the table of contents names."""
        return [block for block in self.blocks if block.title]


@dataclass(frozen=True)
class Found:
    """A line of the page's list of what is there: a folder, what it is, whether it is complete."""

    folder: str
    kind: str
    state: State
    note: str = ""
    created: str = ""
    network: str = ""


@dataclass(frozen=True)
class Document:
    """A whole page."""

    title: str
    network: str
    verdict: Sequence[str]
    numbers: Sequence[Number]
    found: Sequence[Found]
    absent: Sequence[str]
    sections: Sequence[Section] = field(default_factory=list)
    headed: Sequence[str] = ()  # the sections whose verdict is at the top


def charts_of(blocks: Sequence[Block]) -> list[Chart]:
    """Every chart in the blocks, in order."""
    found: list[Chart] = []
    for block in blocks:
        if isinstance(block, Chart):
            found.append(block)
        elif isinstance(block, Grid):
            found.extend(block.charts)
        elif isinstance(block, Tabs):
            for _, grids in block.panels:
                found.extend(charts_of(grids))
    return found


def plain(value: Any) -> Any:
    """Arrays and numpy numbers as JSON's own; floats to seven digits, what is not finite as null."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value
