"""The paper's Figure 3: the Gaussians of one class, and a known and an unknown sample's z-scores on top."""

from __future__ import annotations

from typing import Any

import numpy as np

from ghost_ray.report.discover import Result
from ghost_ray.report.document import Axis, Chart, Grid, Series
from ghost_ray.report.numbers import decimal, percent


def figure3(result: Result, identity: str) -> Grid | None:
    """The charts of example.json, or None where there is none."""
    content = result.json("example.json")
    if content is None:
        return None
    name, dimensions = str(content["name"]), content["dimensions"]
    mean, std = (np.asarray(content[field], float) for field in ("mean", "std"))
    known, unknown = content["known"], content["unknown"]
    labels = [f"dimension {d}" for d in dimensions]
    x = np.arange(len(mean))
    said = f"{_said('the known', known)}; {_said('the unknown', unknown)}."
    gaussians = Chart(
        id=f"{identity}-figure3-gaussians",
        title=f"The Gaussians of “{name}”",
        caption="The fitted mean of a sample of the dimensions, sorted by it, with one and two standard deviations around. "
        "Where the band is narrow, a small departure weighs much.",
        says=f"{len(x)} dimensions of {name}; means from {mean.min():.3g} to {mean.max():.3g}, "
        f"standard deviations from {std.min():.3g} to {std.max():.3g}.",
        x=Axis("dimensions, sorted by mean"),
        y=Axis("value of the embedding"),
        series=gaussian_bands(x, mean, std, labels),
    )
    scores = Chart(
        id=f"{identity}-figure3-z",
        title="|z| of a known and an unknown",
        caption=f"Both are classified as “{name}”. Each point is how many standard deviations the sample lies from the mean "
        "in that dimension; their sum over all dimensions is s.",
        says=f"{said} Of the dimensions shown, {_beyond(known)} of the known’s and {_beyond(unknown)} of the unknown’s "
        "lie beyond 2 σ.",
        x=Axis("dimensions, sorted by mean"),
        y=Axis("|z|"),
        series=[
            Series("known", x=x, y=known["z"], kind="points", style="known", labels=labels),
            Series(
                f"unknown ({unknown.get('set')})", x=x, y=unknown["z"], kind="points", style="unknown", labels=labels
            ),
        ],
    )
    intro = f"γ is the logit over s: an unknown can be as sure of its class as a known and still lie far from it. Here {said}"
    return Grid(f"{identity}-figure3", "One class up close", [gaussians, scores], intro)


def gaussian_bands(x: np.ndarray, mean: np.ndarray, std: np.ndarray, labels: list[str]) -> list[Series]:
    """Means with one and two standard deviations around them."""
    return [
        Series("± 2 σ", x=x, y=mean + 2 * std, low=mean - 2 * std, kind="band", style="muted"),
        Series("± 1 σ", x=x, y=mean + std, low=mean - std, kind="band"),
        Series("mean", x=x, y=mean, labels=labels),
    ]


def _said(who: str, sample: dict[str, Any]) -> str:
    values = (decimal(sample.get(field), digits) for field, digits in (("logit", 1), ("s", 1), ("gamma", 4)))
    logit, s, gamma = values
    return f"{who} has logit {logit}, s {s}, γ {gamma}"


def _beyond(sample: dict[str, Any]) -> str:
    z = np.asarray(sample["z"], float)
    return percent(float(np.mean(z > 2)), 0)
