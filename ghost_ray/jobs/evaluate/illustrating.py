"""GHOST at work, for the report: how far samples lie from their Gaussians, and one class looked at closely."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ghost_ray.gaussians import Gaussians
from ghost_ray.jobs.evaluate.batches import BatchReader
from ghost_ray.jobs.evaluate.evaluate_plan import KNOWN
from ghost_ray.jobs.evaluate.findings import Example, ExampleSample
from ghost_ray.jobs.evaluate.scoring import SetScores

BINS = 100
FEW = 0.001  # share of the samples that are the nearest, and the farthest
FAR = 20  # how many times the nearest the farthest may lie to be shown beside it on a linear axis
MOST_BINS = 300  # between what is common and what is farthest, however far that is
DIMENSIONS_SHOWN = 48
SUREST = 0.1  # share of the unknowns that the example's class is chosen by
HISTOGRAM_SCHEMA = pa.schema(
    [("set", pa.string()), ("left", pa.float64()), ("right", pa.float64()), ("count", pa.int64())]
)


def z_histograms(sets: dict[str, SetScores]) -> pa.Table:
    """How many samples of each set lie how far from the Gaussian of their predicted class, over common bins.

    Samples whose class has no Gaussian are in no bin.
    """
    distances = {name: s.z_sum[np.isfinite(s.z_sum)] for name, s in sets.items() if s.z_sum is not None}
    pooled = np.concatenate(list(distances.values()))
    edges = _edges(pooled) if len(pooled) else np.array([0.0, 1.0])
    bins = len(edges) - 1
    columns = [
        np.repeat(list(distances), bins),
        np.tile(edges[:-1], len(distances)),
        np.tile(edges[1:], len(distances)),
        np.concatenate([np.histogram(values, edges)[0] for values in distances.values()]),
    ]
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, HISTOGRAM_SCHEMA, strict=True)],
        schema=HISTOGRAM_SCHEMA,
    )


def _edges(values: np.ndarray) -> np.ndarray:
    """Common bins out to the farthest value: even ones, or, where that is far, even ones of the logarithm."""
    low, high = float(values.min()), float(values.max())
    if high <= low:
        return np.array([low, np.nextafter(high, np.inf)])
    near, far = np.quantile(values[values > 0], [FEW, 1 - FEW])
    if high / FAR <= near:
        return np.linspace(low, high, BINS + 1)
    step = max(float(np.log(far) - np.log(near)) / BINS, 1e-9)
    lowest = float(values.min(initial=high, where=values > 0))
    parts = [_even(lowest, near, step), _even(near, far, step), _even(far, high, step)]
    return np.unique([low, *np.concatenate(parts)])


def _even(start: float, stop: float, step: float) -> np.ndarray:
    """Bins of the logarithm, as wide as ``step`` so that their shares compare, but never endlessly many."""
    if not start < stop:
        return np.array([start])
    wanted = np.ceil((np.log(stop) - np.log(start)) / step)
    return np.geomspace(start, stop, 1 + int(np.clip(wanted, 1, MOST_BINS)))


def example(readers: dict[str, BatchReader], sets: dict[str, SetScores], gaussians: Gaussians) -> Example | None:
    """The paper's Figure 3: a class, a known of it and an unknown taken for it, seen dimension by dimension.

    Of the unknowns the network is surest of (the largest top logits), the class that most are taken for; of these the
    one it is surest of; and the correctly classified known that lies at the median distance. None where no such class
    has a Gaussian and a known.

    Returns
    -------
    dict or None
        class, name, dimensions (a sample of them in order of mean), mean, std, and known and unknown with key, set,
        logit, s, gamma and z of each of these dimensions.
    """
    known = sets[KNOWN]
    names = [name for name in sets if name != KNOWN]
    logit = np.concatenate([sets[name].top_logit for name in names])
    pred = np.concatenate([sets[name].pred for name in names])
    usable = gaussians.present[pred] & np.isin(pred, known.pred[known.pred == known.label])
    if not usable.any():
        return None
    order = np.argsort(-np.where(usable, logit, -np.inf), kind="stable")[: int(usable.sum())]
    surest = order[: max(1, round(SUREST * len(order)))]
    k = int(np.bincount(pred[surest]).argmax())
    at = int(surest[pred[surest] == k][0])
    candidates = np.flatnonzero((known.pred == k) & (known.label == k))
    assert known.z_sum is not None
    middle = np.argsort(known.z_sum[candidates], kind="stable")[len(candidates) // 2]
    shown = _dimensions(gaussians, k)
    ends = np.cumsum([len(sets[name].pred) for name in names])
    place = int(np.searchsorted(ends, at, side="right"))
    name, row = names[place], at - int(ends[place]) + len(sets[names[place]].pred)
    store = readers[KNOWN].store
    return {
        "class": k,
        "name": store.class_name(k),
        "dimensions": shown.tolist(),
        "mean": _plain(gaussians.mean[k, shown]),
        "std": _plain(gaussians.std[k, shown]),
        "known": _sample(readers, sets, gaussians, KNOWN, int(candidates[middle]), shown),
        "unknown": _sample(readers, sets, gaussians, name, row, shown),
    }


def _dimensions(gaussians: Gaussians, k: int) -> np.ndarray:
    """Every n-th dimension that varies, in order of its mean."""
    varying = np.flatnonzero(gaussians.std[k] > 0)
    order = varying[np.argsort(gaussians.mean[k, varying], kind="stable")]
    return order[:: max(1, -(-len(order) // DIMENSIONS_SHOWN))]


def _sample(
    readers: dict[str, BatchReader],
    sets: dict[str, SetScores],
    gaussians: Gaussians,
    name: str,
    row: int,
    shown: np.ndarray,
) -> ExampleSample:
    scores = sets[name]
    offset = row
    for piece in readers[name].store.pieces():
        if offset < piece.rows:
            break
        offset -= piece.rows
    batch, key = readers[name].read(piece, with_logits=False)
    k = int(scores.pred[row])
    z = np.abs(batch.embedding[offset].astype(np.float64) - gaussians.mean[k]) * gaussians.inverse_std[k]
    assert scores.z_sum is not None
    return {
        "key": key[offset].as_py(),
        "set": name,
        "logit": float(scores.top_logit[row]),
        "s": float(scores.z_sum[row]),
        "gamma": float(scores.scores["ghost"][row]),
        "z": _plain(z[shown]),
    }


def _plain(values: np.ndarray) -> list[float]:
    return [float(value) for value in values]
