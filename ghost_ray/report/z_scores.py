"""Distances of knowns and unknowns from the Gaussians of their predicted classes."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ghost_ray.report.discover import Result
from ghost_ray.report.document import Axis, Chart, Grid, Series

KNOWN = "known"
_TITLE = "s = Σ |z|"
_FAR = 20  # how many times the nearest the farthest may be on a linear axis


def z_score_chart(result: Result, identity: str) -> Grid | None:
    """Distances of knowns and of each unknown set from the Gaussian of the predicted class."""
    table = result.table("zscores.parquet", ("set", "left", "right", "count"))
    if table is None or len(table["count"]) == 0:
        return None
    names = sorted(dict.fromkeys(table["set"]), key=lambda name: name != KNOWN)
    series, said = [], []
    axis = _axis(table["left"], table["right"], table["count"])
    for position, name in enumerate(names):
        at = np.flatnonzero(table["set"] == name)
        at = at[np.argsort(table["left"][at], kind="stable")]
        left, right, count = (table[column][at].astype(float) for column in ("left", "right", "count"))
        share = count / max(count.sum(), 1)
        edges = np.append(left, right[-1])
        if axis.range:  # on a logarithmic axis nothing begins at 0
            edges = np.maximum(edges, axis.range[0])
        shown = np.where(share > 0, share, np.nan)
        series.append(Series(name, x=edges, y=np.append(shown, shown[-1]), kind="steps", style=position))
        middle = int(np.searchsorted(np.cumsum(share), 0.5))
        said.append(f"{name}: half are below {right[min(middle, len(right) - 1)]:.4g}")
    chart = Chart(
        id=f"{identity}-z",
        title="Distance from the predicted class’s Gaussian",
        caption="s is the sum of |z| over the dimensions, shown for every test sample whose predicted class has a "
        "Gaussian, up to the farthest. Shares are on a logarithmic axis, so that rare failures are visible. The less "
        "known and unknown overlap, the better their distances separate them.",
        says="Distribution of s. " + "; ".join(said) + ".",
        x=axis,
        y=Axis("share of the set", scale="log", percent=True),
        series=series,
        height=380,
    )
    return Grid(f"{identity}-z-scores", "Distance from the class", [chart])


def _axis(left: np.ndarray, right: np.ndarray, count: np.ndarray) -> Axis:
    """The full range, including the farthest sample; a logarithmic axis if that is far."""
    held = count > 0
    near, far = float(left[held].min(initial=np.inf)), float(right[held].max(initial=0.0))
    lowest = float(right[held].min(initial=np.inf))
    if not near < far:
        return Axis(_TITLE)
    if near <= 0:
        near = lowest / 10 if far > _FAR * lowest else 0.0
    scale: Literal["log", "linear"] = "log" if near > 0 and far > _FAR * near else "linear"
    return Axis(_TITLE, scale=scale, range=(near, far))
