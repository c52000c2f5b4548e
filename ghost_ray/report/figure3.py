"""The paper's Figure 3: the Gaussians of one class, and a known and an unknown sample's z-scores on top."""

from __future__ import annotations

import numpy as np

from ghost_ray.jobs.evaluate.findings import Example, ExampleSample
from ghost_ray.report.discover import Result
from ghost_ray.report.document import Axis, Chart, Grid, Series
from ghost_ray.report.numbers import decimal, number, percent, short


def figure3(result: Result, identity: str) -> Grid | None:
    """The charts of example.json, or None if there is none."""
    content = result.json("example.json", Example)
    if not content:
        return None
    name, dimensions = str(content["name"]), content["dimensions"]
    mean, std = (np.asarray(content[field], float) for field in ("mean", "std"))
    known, unknown = content["known"], content["unknown"]
    labels = [f"dimension {d}" for d in dimensions]
    x = np.arange(len(mean))
    said = f"the known has {_said(known)}; the unknown has {_said(unknown)}."
    gaussians = Chart(
        id=f"{identity}-figure3-gaussians",
        title=f"The Gaussians of “{name}”",
        caption="The same dimensions: the fitted means in ascending order, with one and two standard deviations around "
        "them. Where the band is narrow, a small deviation has a large weight.",
        says=f"{len(x)} dimensions of {name}; means from {short(mean.min())} to {short(mean.max())}, "
        f"standard deviations from {short(std.min())} to {short(std.max())}.",
        height=280,
        x=Axis("dimensions, sorted by mean", ordinal=True),
        y=Axis("value of the embedding"),
        series=gaussian_bands(x, mean, std, labels),
    )
    scores = Chart(
        id=f"{identity}-figure3-z",
        title="|z| of a known and an unknown",
        caption=f"Both are classified as “{name}”. Each point shows how many standard deviations the sample is from "
        "the mean in that dimension; the sum over all dimensions, shown or not, is s.",
        says=f"{said.capitalize()} Of the dimensions shown, {_beyond(known)} of the known’s and {_beyond(unknown)} of "
        "the unknown’s lie beyond 2 σ.",
        x=Axis("dimensions, sorted by mean", ordinal=True),
        y=Axis("|z|"),
        height=260,
        series=[
            Series("known", x=x, y=known["z"], kind="points", style="known", labels=labels),
            Series(
                f"unknown ({unknown.get('set')})", x=x, y=unknown["z"], kind="points", style="unknown", labels=labels
            ),
        ],
    )
    intro = f"γ is the logit over s. Of these two, {said}{_beside(known, unknown)}"
    return Grid(f"{identity}-figure3", "One class up close", [scores, gaussians], intro, stacked=True)


def gaussian_bands(x: np.ndarray, mean: np.ndarray, std: np.ndarray, labels: list[str]) -> list[Series]:
    """Means with one and two standard deviations around them."""
    return [
        Series("± 2 σ", x=x, y=mean + 2 * std, low=mean - 2 * std, kind="band", style="muted"),
        Series("± 1 σ", x=x, y=mean + std, low=mean - std, kind="band"),
        Series("mean", x=x, y=mean, labels=labels),
    ]


def _said(sample: ExampleSample) -> str:
    return (
        f"logit {decimal(sample.get('logit'), 1)}, s {decimal(sample.get('s'), 1)}, γ {decimal(sample.get('gamma'), 4)}"
    )


def _beside(known: ExampleSample, unknown: ExampleSample) -> str:
    """A comparison of the unknown with the known."""
    s, gamma = ((number(unknown.get(f)), number(known.get(f))) for f in ("s", "gamma"))
    if s[0] is None or s[1] is None or gamma[0] is None or gamma[1] is None:
        return ""
    distance = "farther from the class than" if s[0] > s[1] else "no farther from the class than"
    score = "lower, as it should be" if gamma[0] < gamma[1] else "no lower: GHOST considers it at least as known"
    return f" The unknown lies {distance} the known, and its γ is {score}."


def _beyond(sample: ExampleSample) -> str:
    z = np.asarray(sample["z"], float)
    return percent(float(np.mean(z > 2)), 0)
