"""The page's figures for papers: the same objects, drawn by matplotlib as PNG, SVG and PDF."""

from __future__ import annotations

import contextlib
import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ghost_ray.files import join, write_bytes
from ghost_ray.report.assemble import assemble
from ghost_ray.report.discover import find_results
from ghost_ray.report.document import Axis, Block, Chart, Document, Grid, HeatMap, Series, Tabs, shown
from ghost_ray.report.look import INK, PALETTE, QUIET, look_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
_INK, _QUIET, _LINE = "#1c2127", "#5a626d", "#d9d6cf"
_MARKERS = {"circle": "o", "x": "x"}
# Margins around a chart, in inches.
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.72, 0.24, 0.3, 0.46
_INCHES_A_PIXEL, _INCHES_A_LETTER = 0.0076, 0.055
_TITLE_LETTER, _TITLE_LINE = 0.07, 0.16
# No time of making and no random ids: the same numbers give the same bytes. Text in SVG stays text.
_SETTINGS: Any = {
    "font.size": 8,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _INK,
    "axes.titlesize": 9,
    "axes.titley": 1.02,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.5,
    "xtick.color": _QUIET,
    "ytick.color": _QUIET,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "svg.fonttype": "none",
    "svg.hashsalt": "ghost_ray",
    "pdf.fonttype": 42,
    "text.parse_math": False,
}
_NO_DATES: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def save_plots(document: Document, folder: str) -> list[str]:
    """Write every figure of the document into ``folder``, in each of FORMATS.

    Charts that are side by side on the page are one figure.

    Returns
    -------
    list of str
        The names of the files written.
    """
    written = []
    with drawing():
        for section in document.sections:
            for name, figure in _figures(section.blocks):
                for kind in FORMATS:
                    stream = io.BytesIO()
                    figure.savefig(stream, format=kind, dpi=160, metadata=_NO_DATES[kind])
                    content = stream.getvalue()
                    if kind == "svg":
                        content = shown(content.decode()).encode()
                    write_bytes(join(folder, f"{name}.{kind}"), content)
                    written.append(f"{name}.{kind}")
    return written


def figures_in(folder: str) -> dict[str, Figure]:
    """The figures of the results in a folder, by name."""
    with drawing():
        document = assemble(find_results([folder]), "")
        return {name: figure for section in document.sections for name, figure in _figures(section.blocks)}


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Matplotlib's settings for the block as all figures have them."""
    from matplotlib import rc_context

    with rc_context(_SETTINGS), warnings.catch_warnings():
        # A class name in a script the font lacks is drawn as boxes; the page shows it right.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def _figures(blocks: Sequence[Block]) -> Iterator[tuple[str, Figure]]:
    for block in blocks:
        if isinstance(block, Chart):
            yield block.id, _draw([block], 1)
        elif isinstance(block, Grid):
            yield block.id, _draw(list(block.charts), 1 if block.stacked else 2)
        elif isinstance(block, Tabs):
            for _, grids in block.panels:
                yield from _figures(grids)
        elif isinstance(block, HeatMap):
            yield block.id, _draw_heat_map(block)


def _draw(charts: list[Chart], columns: int) -> Figure:
    """Charts in columns, each with its own margins in inches, so that nothing ever overlaps."""
    from matplotlib.figure import Figure

    columns = min(columns, len(charts))
    width = 5.2 if columns == 1 else 3.4
    lefts = [_left_margin(chart) for chart in charts]
    titles = [_wrapped(chart.title, width - left) for chart, left in zip(charts, lefts, strict=True)]
    tops = [
        _TOP + _TITLE_LINE * max(title.count("\n") for title in titles[first : first + columns])
        for first in range(0, len(charts), columns)
    ]
    heights = [_INCHES_A_PIXEL * chart.height + top - _TOP for chart, top in zip(charts[::columns], tops, strict=True)]
    figure = Figure(figsize=(columns * width, sum(heights)))
    by_id = {chart.id: chart for chart in charts}
    named: set[tuple[str, ...]] = set()
    for place, chart in enumerate(charts):
        row, column = divmod(place, columns)
        left = lefts[place]
        box = (
            (column * width + left) / (columns * width),
            1 - (sum(heights[: row + 1]) - _BOTTOM) / sum(heights),
            (width - left - _RIGHT) / (columns * width),
            (heights[row] - _BOTTOM - tops[row]) / sum(heights),
        )
        source = by_id[chart.series_of] if chart.series_of else chart
        series = source.whole_series() if source.whole_series else source.series
        # One legend serves all charts of a figure that show the same things.
        names = tuple(one.name for one in series)
        axes = figure.add_axes(box)
        axes.set_title(titles[place], loc="left", color=_INK)
        _draw_chart(axes, chart, series, legend=names not in named)
        named.add(names)
    return figure


def _left_margin(chart: Chart) -> float:
    names = chart.y.order or [""] if chart.horizontal else [""]
    return _LEFT + _INCHES_A_LETTER * max(len(_short(name)) for name in names)


def _wrapped(title: str, inches: float) -> str:
    return "\n".join(textwrap.wrap(title, int(inches / _TITLE_LETTER)))


def _draw_chart(axes: Axes, chart: Chart, series: Sequence[Series], legend: bool) -> None:
    for one in series:
        _draw_series(axes, chart, one)
    for name, axis in (("x", chart.x), ("y", chart.y)):
        _set_axis(axes, name, axis)
    if chart.horizontal:  # room for the values beside the bars
        axes.set_xlim(0, 1.18 * max(float(np.max(one.x)) for one in series) or 1.0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if legend and len(series) > 1 and not chart.horizontal:
        axes.legend(handlelength=2.6, labelspacing=0.25, ncols=2 if len(series) > 6 else 1)


def _set_axis(axes: Axes, name: str, axis: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    getattr(axes, f"set_{name}label")(axis.title)
    target = getattr(axes, f"{name}axis")
    if axis.scale == "log":
        getattr(axes, f"set_{name}scale")("log")
        target.set_minor_formatter(NullFormatter())
        target.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if axis.one_minus:
        target.set_major_formatter(FuncFormatter(lambda value, _: f"{1 - value:.6g}"))
    elif axis.percent:
        target.set_major_formatter(FuncFormatter(lambda value, _: f"{round(100 * value, 6):g} %"))
    if axis.range:
        getattr(axes, f"set_{name}lim")(*axis.range)


def _draw_series(axes: Axes, chart: Chart, series: Series) -> None:
    look = look_of(series.style)
    colour = {INK: _INK, QUIET: _QUIET}.get(look.colour) or PALETTE[look.colour][0]
    dash: Any = (0, look.dash) if look.dash else "solid"
    line = {"color": colour, "linestyle": dash, "linewidth": 0.65 * look.width, "label": series.name}
    x, y = np.asarray(series.x), np.asarray(series.y)
    if series.kind == "points":
        axes.plot(x, y, _MARKERS[look.symbol], color=colour, markersize=2.6, alpha=0.7, label=series.name)
    elif series.kind == "steps":
        axes.step(x, y, where="post", **line)
    elif series.kind == "band":
        axes.fill_between(x, np.asarray(series.low), y, color=colour, alpha=0.25, linewidth=0, label=series.name)
    elif series.kind == "bar" and chart.horizontal:
        order = list(chart.y.order or series.y)
        places = [order.index(name) for name in series.y]
        axes.barh(places, x, height=0.65, color=colour, label=series.name)
        for place, value, text in zip(places, x, series.text or [""] * len(x), strict=True):
            axes.annotate(text, (value, place), (3, 0), textcoords="offset points", va="center", color=_INK)
        axes.set_yticks(range(len(order)), [_short(name) for name in order])
        axes.grid(axis="y", visible=False)
    elif series.kind == "bar":
        width = 0.94 * float(np.min(np.diff(x))) if len(x) > 1 else 0.8
        axes.bar(x, y, width, color=colour, label=series.name)
    else:
        axes.plot(x, y, **line)


def _draw_heat_map(heat: HeatMap) -> Figure:
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.image import imread

    figure = Figure(figsize=(6.8, 5.4))
    axes = figure.add_axes((0.2, 0.2, 0.77, 0.74))
    axes.imshow(imread(io.BytesIO(heat.png)), aspect="auto", interpolation="nearest", extent=(0, 1, 1, 0))
    axes.grid(visible=False)
    axes.set_title(heat.title, loc="left", color=_INK)
    axes.set_yticks([at for at, _ in heat.row_ticks], [_short(name) for _, name in heat.row_ticks])
    axes.set_xticks([at for at, _ in heat.column_ticks], [name for _, name in heat.column_ticks])
    axes.set_xlabel(f"{heat.column_title}, least normal first")
    axes.set_ylabel(f"{heat.row_title}, least normal first")
    bar = figure.add_axes((0.2, 0.07, 0.4, 0.02))
    colours = ListedColormap(np.array(heat.palette[: len(heat.values)][::-1]) / 255)
    bar.imshow(np.arange(len(heat.values))[None], aspect="auto", cmap=colours, extent=(0, 1, 0, 1))
    bar.grid(visible=False)
    bar.set_yticks([])
    bar.set_xticks([at for at, _ in heat.ticks], [label for _, label in heat.ticks])
    bar.set_title("W", loc="left", fontsize=8)
    if heat.absent:
        absent = "#{:02x}{:02x}{:02x}".format(*heat.palette[-1])
        figure.text(0.65, 0.075, "■", color=absent)
        figure.text(0.67, 0.075, heat.absent, fontsize=6)
    return figure


def _short(name: str) -> str:
    return name if len(name) <= 22 else f"{name[:21]}…"
