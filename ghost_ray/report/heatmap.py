"""The matrix of W as a picture: sorted, binned to a bounded size, coloured on a logarithmic scale of 1 − W."""

from __future__ import annotations

import io

import numpy as np

from ghost_ray.report.cells import Cells
from ghost_ray.report.document import HeatMap
from ghost_ray.report.numbers import class_name, plural

_LEVELS = 96
_MAX_PIXELS = 1_300_000
_MAX_SIDE = 1400
# Cividis, sampled: seen alike with and without colour vision, dark = far from normal.
_ANCHORS = [
    (0, 34, 78), (18, 53, 112), (59, 73, 108), (87, 93, 109), (112, 113, 115),
    (138, 134, 120), (165, 156, 116), (195, 179, 105), (225, 204, 85), (254, 232, 56),
]  # fmt: skip
_ABSENT = (204, 121, 167)


def heat_map(cells: Cells, names: list[str] | None, prefix: str, share: float = 1.0) -> HeatMap:
    """The heat map of an audit; ``share`` is its share of the page's space for pictures."""
    rows, columns = cells.least_normal_first(axis=1), cells.least_normal_first(axis=0)
    defect = np.log10(np.clip(1.0 - cells.W[np.ix_(rows, columns)], 1e-6, 1.0))
    binned = _bin(defect, share)
    low, high = _range(binned)
    # Level 0 is the most normal; the palette runs the other way, so that dark means far from normal.
    level = np.clip(np.round((binned - low) / (high - low) * (_LEVELS - 1)), 0, _LEVELS - 1)
    absent = np.isnan(level)
    index = np.where(absent, _LEVELS, level).astype(np.uint8)
    palette = _palette()
    values = [float(1 - 10 ** (low + (high - low) * i / (_LEVELS - 1))) for i in range(_LEVELS)]
    classes, dimensions = cells.W.shape
    shown_classes, shown_dimensions = index.shape
    merged = "" if index.shape == cells.W.shape else (
        f" Neighbours are averaged to fit: the picture has {shown_classes:,} × {shown_dimensions:,} cells."
    )  # fmt: skip
    tested = int(np.isfinite(cells.class_means()).sum())
    worst, best = class_name(names, int(rows[0])), class_name(names, int(rows[tested - 1]))
    ends = f"Least normal class: {worst}; most normal: {best}." if tested > 1 else f"The one class tested: {worst}."
    return HeatMap(
        id=f"{prefix}-heat-map",
        title="W of every class and dimension",
        caption=(
            "One cell is one Shapiro–Wilk test. Classes (rows) and dimensions (columns) are sorted by their share of "
            "rejected tests, then by their mean W, the least normal at the top left. A dark horizontal band is a "
            "class that is far from Gaussian in most dimensions. A dark vertical band is a dimension that is far from "
            "Gaussian in most classes."
            f"{merged}"
        ),
        says=(
            f"Heat map of W over {plural(classes, 'class', 'classes')} and {plural(dimensions, 'dimension')}. {ends} "
            f"The median of W is {np.nanmedian(cells.W):.4f}, its 1st percentile is "
            f"{np.nanquantile(cells.W, 0.01):.4f}."
        ),
        png=_png(index, palette),
        row_title=plural(classes, "class", "classes"),
        column_title=plural(dimensions, "dimension"),
        rows=[class_name(names, int(row)) for row in rows],
        columns=columns.tolist(),
        row_ticks=_edge([class_name(names, int(row)) for row in rows]),
        column_ticks=_edge([str(column) for column in columns]),
        ticks=_ticks(low, high),
        palette=palette,
        values=values,
        width=shown_dimensions,
        height=shown_classes,
        absent="degenerate: constant, or fewer than three samples" if absent.any() else None,
    )


def _edge(labels: list[str]) -> list[tuple[float, str]]:
    """Labels along an edge: all where there is room, else a few evenly spaced ones."""
    if len(labels) <= 16:
        return [((i + 0.5) / len(labels), label) for i, label in enumerate(labels)]
    chosen = np.linspace(0, len(labels) - 1, 6).round().astype(int)
    return [((int(i) + 0.5) / len(labels), labels[i]) for i in chosen]


def _bin(matrix: np.ndarray, share: float) -> np.ndarray:
    """Mean of blocks of neighbours, so that the picture stays within its size limit."""
    step = [1, 1]
    limit = max(int(_MAX_PIXELS * share), 10_000)
    while True:
        size = [-(-length // s) for length, s in zip(matrix.shape, step, strict=True)]
        if size[0] * size[1] <= limit and max(size) <= _MAX_SIDE:
            break
        step[size[1] > size[0]] += 1
    for axis, s in enumerate(step):
        if s > 1:
            edges = np.arange(0, matrix.shape[axis], s)
            counts = np.add.reduceat(~np.isnan(matrix), edges, axis=axis, dtype=np.float32)
            sums = np.add.reduceat(np.nan_to_num(matrix), edges, axis=axis, dtype=np.float32)
            with np.errstate(invalid="ignore"):
                matrix = sums / np.where(counts == 0, np.nan, counts)
    return matrix


def _range(values: np.ndarray) -> tuple[float, float]:
    """Where the colours begin and end: all but the outermost half percent on each side."""
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        return -3.0, 0.0
    low, high = np.quantile(finite, [0.005, 0.995])
    return (float(low), float(high)) if high - low > 1e-6 else (float(low) - 0.5, float(low) + 0.5)


def _palette() -> list[tuple[int, int, int]]:
    anchors = np.array(_ANCHORS[::-1], float)
    at = np.linspace(0, len(anchors) - 1, _LEVELS)
    below = np.minimum(at.astype(int), len(anchors) - 2)
    mixed = anchors[below] + (anchors[below + 1] - anchors[below]) * (at - below)[:, None]
    # Distinct colours: the page reads a value back from them.
    colours = [(int(r), int(g), int(b)) for r, g, b in np.round(mixed)]
    assert len(set(colours)) == _LEVELS
    return [*colours, _ABSENT]


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round values of W along the colour bar, left the least normal."""
    nice = [1 - m * 10.0**-e for e in range(0, 7) for m in (0.9, 0.8, 0.5, 0.3, 0.2, 0.1)]
    ticks: list[tuple[float, str]] = []
    for value in sorted({round(v, 8) for v in nice}):
        at = (high - np.log10(1 - value)) / (high - low)
        if 0 <= at <= 1 and (not ticks or at - ticks[-1][0] > 0.14):
            ticks.append((float(at), f"{value:g}"))
    return ticks


def _png(index: np.ndarray, palette: list[tuple[int, int, int]]) -> bytes:
    from PIL import Image

    image = Image.fromarray(index, mode="P")
    image.putpalette([channel for colour in palette for channel in colour])
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=False, compress_level=9)
    return stream.getvalue()
