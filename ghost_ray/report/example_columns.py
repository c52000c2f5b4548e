"""Q–Q plots and histograms of single columns: what a W looks like."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from ghost_ray.report.discover import Result
from ghost_ray.report.document import Axis, Chart, Grid, Series
from ghost_ray.report.numbers import class_name, decimal, short, small, whole

_COLUMNS = ("kind", "class", "dimension", "n", "W", "p", "mean", "std", "values")
_WORST, _TYPICAL = 3, 2
_BINS = 24
_MOST_POINTS = 400


def example_charts(result: Result, identity: str) -> Grid | None:
    """A Q–Q plot and a histogram over the fitted Gaussian for each example column, least normal first."""
    table = result.table("examples.parquet", _COLUMNS)
    if table is None:
        return None
    charts: list[Chart] = []
    for i in _chosen(table["kind"]):
        held = table["values"][i]
        values = np.asarray([] if held is None else held, np.float64)
        values = np.sort(values[np.isfinite(values)])
        spread = float(table["std"][i])
        if len(values) < 3 or not spread > 0:
            continue
        name = f"{class_name(result.class_names, int(table['class'][i]))}, dimension {int(table['dimension'][i])}"
        title = f"{'Least normal' if table['kind'][i] == 'worst' else 'Typical'}: {name}"
        facts = (
            f"W {decimal(table['W'][i].item(), 4)}, p {small(table['p'][i].item())}, n {whole(table['n'][i].item())}"
        )
        prefix = f"{identity}-example-{len(charts) // 2}"
        charts.append(_quantiles(prefix, title, facts, values, float(table["mean"][i]), spread))
        charts.append(_histogram(prefix, name, facts, values, float(table["mean"][i]), spread))
    if not charts:
        return None
    intro = (
        "For each column, first the Q–Q plot: points on the dashed line are normal; an S shape means heavy or light "
        "tails, a bow means skew, a step means two clusters. Then a histogram of the values with the fitted Gaussian."
    )
    return Grid(f"{identity}-examples", "What such columns look like", charts, intro, small=True)


def _chosen(kinds: np.ndarray) -> list[int]:
    """The least normal columns, and for comparison a few typical ones."""
    worst = [i for i, kind in enumerate(kinds) if kind == "worst"][:_WORST]
    typical = [i for i, kind in enumerate(kinds) if kind == "typical"]
    return [*worst, *typical[:: max(1, len(typical) // _TYPICAL)][:_TYPICAL]]


def _quantiles(prefix: str, name: str, facts: str, values: np.ndarray, mean: float, std: float) -> Chart:
    n = len(values)
    expected = np.array([NormalDist().inv_cdf((i + 0.625) / (n + 0.25)) for i in range(n)])
    observed = (values - mean) / std
    (lowest, low), (highest, high) = ((decimal(observed[i], 2), decimal(expected[i], 2)) for i in (0, -1))
    shown = _evenly(expected)
    reach = float(np.ceil(max(np.abs(expected).max(), 1.0)))
    return Chart(
        id=f"{prefix}-qq",
        title=name,
        caption=f"Q–Q plot. {facts}.",
        says=f"Q–Q plot, {name}: {facts}. The lowest value lies at {lowest} σ, where a normal one would lie "
        f"at {low}; the highest at {highest} σ, where it would lie at {high}.",
        x=Axis("expected, σ"),
        y=Axis("observed, σ"),
        series=[
            Series("normal", x=[-reach, reach], y=[-reach, reach], style="reference"),
            Series("values", x=expected[shown], y=observed[shown], kind="points"),
        ],
        height=250,
    )


def _evenly(expected: np.ndarray) -> np.ndarray:
    """Which points of a Q–Q plot to draw: all, or as many as can be distinguished, including the tails."""
    if len(expected) <= _MOST_POINTS:
        return np.arange(len(expected))
    places = np.linspace(expected[0], expected[-1], _MOST_POINTS)
    return np.unique(np.searchsorted(expected, places).clip(max=len(expected) - 1))


def _histogram(prefix: str, name: str, facts: str, values: np.ndarray, mean: float, std: float) -> Chart:
    counts, edges = np.histogram(values, bins=_BINS)
    density = counts / (len(values) * np.diff(edges))
    low, high = min(edges[0], mean - 3 * std), max(edges[-1], mean + 3 * std)
    # Dense where the curve bends, however far away a single value lies.
    grid = np.unique([low, high, *np.linspace(mean - 4 * std, mean + 4 * std, 81).clip(low, high)])
    curve = np.exp(-0.5 * ((grid - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    return Chart(
        id=f"{prefix}-histogram",
        title="The same values under the fitted Gaussian",
        caption=f"Mean {short(mean)}, σ {short(std)}.",
        says=f"Histogram of {name}: {facts}; mean {short(mean)}, standard deviation {short(std)}, "
        f"values from {short(values[0])} to {short(values[-1])}.",
        x=Axis("value of the embedding"),
        y=Axis("density"),
        series=[
            Series("values", x=(edges[1:] + edges[:-1]) / 2, y=density, kind="bar", style="muted"),
            Series("fitted Gaussian", x=grid, y=curve, style="main"),
        ],
        height=250,
    )
