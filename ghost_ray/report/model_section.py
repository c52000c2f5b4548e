"""The section of a model: the Gaussians GHOST fitted."""

from __future__ import annotations

import numpy as np

from ghost_ray.errors import InputError, redact
from ghost_ray.files import join
from ghost_ray.files.tensors import read_tensors
from ghost_ray.gaussians import Gaussians
from ghost_ray.model import GAUSSIANS, THRESHOLDS, Threshold
from ghost_ray.report.discover import Result
from ghost_ray.report.document import Axis, Block, Chart, Number, Section, Series
from ghost_ray.report.figure3 import gaussian_bands
from ghost_ray.report.numbers import class_name, number, plural, short, small, whole

_NAMED = 12
_MAX_POINTS = 2000


def model_section(result: Result, identity: str) -> Section:
    """Everything the page shows of a model."""
    tensors: dict[str, np.ndarray] = {}
    if GAUSSIANS in result.files:
        try:
            tensors = read_tensors(join(result.uri, GAUSSIANS), "model", redact(result.uri))
        except InputError as error:
            result.problems.append(error.problem)
    mean, std, count = (tensors.get(name) for name in ("mean", "std", "count"))
    if mean is None or std is None or count is None or mean.ndim != 2 or mean.shape != std.shape:
        verdict = "The model has no Gaussians yet: its file is missing or cannot be read."
        return Section(identity, "model", "Model", result.name, verdict)
    blocks: list[Block] = []
    if (count >= 2).any():
        blocks = [
            _gaussians(mean, std, count, result.class_names, identity),
            _samples(count, result.class_names, identity),
        ]
    return Section(
        id=identity,
        kind="model",
        title="Model",
        source=result.name,
        verdict=_verdict(count, result.class_names),
        numbers=[
            Number(
                f"{int((count >= 2).sum()):,} of {len(count):,}",
                "classes have a Gaussian",
                "two correct samples or more",
            ),
            Number(whole(mean.shape[1]), "dimensions", "of the embedding"),
            Number(whole(int(count.sum())), "samples", "correctly classified training samples, the only ones used"),
        ],
        blocks=blocks,
        facts=_facts(result, mean, std, count),
        notes=result.notes,
    )


def _verdict(count: np.ndarray, names: list[str] | None) -> str:
    without = np.flatnonzero(count < 2)
    if len(without) == 0:
        return "Every class has a Gaussian."
    named = ", ".join(class_name(names, int(k)) for k in without[:_NAMED])
    more = f" and {len(without) - _NAMED:,} more" if len(without) > _NAMED else ""
    have = "has" if len(without) == 1 else "have"
    such = "it" if len(without) == 1 else "one of them"
    return (
        f"{plural(len(without), 'class', 'classes')} {have} no Gaussian; samples predicted as {such} are scored "
        f"as unknown: {named}{more}."
    )


def _facts(result: Result, mean: np.ndarray, std: np.ndarray, count: np.ndarray) -> list[tuple[str, str]]:
    thin = int(((count >= 2) & (count < mean.shape[1])).sum())
    constant = Gaussians(mean, std, count).constant
    facts = [
        ("Classes with fewer samples than dimensions", whole(thin)),
        ("Constant dimensions (class × dimension)", whole(constant)),
    ]
    thresholds = result.json(THRESHOLDS, Threshold)
    if number(thresholds.get("threshold")) is not None:
        facts.append(("Threshold chosen", f"accept γ ≥ {small(thresholds['threshold'])}"))
    return facts


def _gaussians(mean: np.ndarray, std: np.ndarray, count: np.ndarray, names: list[str] | None, identity: str) -> Chart:
    """The class of median size represents all: a page has no space for a thousand."""
    fitted = np.flatnonzero(count >= 2)
    chosen = int(fitted[np.argsort(count[fitted], kind="stable")[len(fitted) // 2]])
    order = np.argsort(mean[chosen], kind="stable")
    mu, sigma = mean[chosen][order].astype(float), std[chosen][order].astype(float)
    name = class_name(names, chosen)
    x = np.arange(len(order))
    return Chart(
        id=f"{identity}-gaussians",
        title=f"The Gaussians of one class: {name}",
        caption="Every dimension’s mean, in ascending order, with one and two standard deviations around it. "
        "GHOST measures a sample’s distance from the line in standard deviations; an evaluation shows it for a known "
        "and an unknown sample, under “One class up close”.",
        says=f"Means of {name} run from {short(mu[0])} to {short(mu[-1])}; the median standard deviation is "
        f"{short(np.median(sigma))}.",
        x=Axis("dimensions, sorted by mean", ordinal=True),
        y=Axis("value of the embedding"),
        series=gaussian_bands(x, mu, sigma, [f"dimension {d}" for d in order]),
        height=380,
    )


def _samples(count: np.ndarray, names: list[str] | None, identity: str) -> Chart:
    order = np.argsort(-count, kind="stable")
    some = f" ({_MAX_POINTS:,} of {len(order):,} classes are drawn)" if len(order) > _MAX_POINTS else ""
    if len(order) > _MAX_POINTS:
        order = order[np.linspace(0, len(order) - 1, _MAX_POINTS).astype(int)]
    return Chart(
        id=f"{identity}-samples",
        title="Samples behind each Gaussian",
        caption=f"Correctly classified training samples of each class, most first{some}. "
        "With few samples, mean and σ are uncertain.",
        says=f"Samples per class: {whole(int(count.min()))} at least, {whole(int(count.max()))} at most, the median is "
        f"{short(np.median(count))}."
        if len(count) > 1
        else f"The one class has {whole(int(count[0]))} samples.",
        x=Axis("classes, most samples first", ordinal=True),
        y=Axis("correctly classified samples"),
        series=[
            Series(
                "samples", x=np.arange(len(order)), y=count[order], labels=[class_name(names, int(k)) for k in order]
            )
        ],
        height=280,
    )
