"""What the report shows of single samples: their distances from the Gaussians, one class looked at closely, and small
copies of the most informative images.

The images are read here and not when a page is made: a result may come from anyone, and must not make its reader's
machine open what it names. Here the caller has named the stores.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.errors import GhostRayError, redact
from ghost_ray.files import is_local, join, open_input
from ghost_ray.gaussians import Gaussians
from ghost_ray.jobs.evaluate.batches import BatchReader
from ghost_ray.jobs.evaluate.evaluate_plan import KNOWN
from ghost_ray.jobs.evaluate.findings import Example, ExampleSample
from ghost_ray.jobs.evaluate.scoring import SetScores, score_file
from ghost_ray.store import Store

BINS = 100
FEW = 0.001  # share of the samples that are the nearest, and the farthest
FAR = 20  # how many times the nearest the farthest may lie to be shown beside it on a linear axis
MOST_BINS = 300  # between what is common and what is farthest, however far that is
DIMENSIONS_SHOWN = 48
SUREST = 0.1  # share of the unknowns that the example's class is chosen by
PICTURES = "pictures.parquet"
SHOWN = 8  # of each set
MOST_BYTES = 12_000  # of a small copy; one that is larger is left out
_PIXELS = 112
_QUALITY = 72
# ``beside`` is a known of the class that an unknown is taken for.
PICTURES_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("method", "set", "key", "label", "pred")),
        ("score", pa.float64()),
        ("jpeg", pa.binary()),
        ("beside_key", pa.string()),
        ("beside_score", pa.float64()),
        ("beside_jpeg", pa.binary()),
    ]
)
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
    for groups in readers[name].store.row_groups():
        if offset < groups.rows:
            break
        offset -= groups.rows
    batch, key = readers[name].read(groups, with_logits=False)
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


def pictures(
    readers: Mapping[str, BatchReader],
    sets: Mapping[str, SetScores],
    method: str,
    scores: str,
    images: Mapping[str, str],
) -> pa.Table | None:
    """The knowns with the lowest scores and the unknowns with the highest, each of these beside a known of its class.

    With a small copy of every image that can be read. None for knowns that were never images.

    Parameters
    ----------
    scores : str
        The folder of the score files, which have the keys.
    images : mapping of set to place
        Where images are, if not where their store says.
    """
    known, store = sets[KNOWN], readers[KNOWN].store
    if KNOWN not in images and "data" not in store.manifest.config:
        return None
    shown: dict[str, list[tuple[int, int | None]]] = {}
    for name, scored in sets.items():
        ranked = np.argsort(scored.scores[method] if name == KNOWN else -scored.scores[method], kind="stable")[:SHOWN]
        shown[name] = [
            (row, None if name == KNOWN else _typical(known, method, int(scored.pred[row]))) for row in ranked.tolist()
        ]
    keys = {name: _keys(scores, method, name) for name in sets}
    wanted = {name: [keys[name][row].as_py() for row, _ in rows] for name, rows in shown.items()}
    beside = {row for rows in shown.values() for _, row in rows if row is not None}
    wanted[KNOWN] += [keys[KNOWN][row].as_py() for row in sorted(beside)]
    copies = {
        name: _small_copies(readers[name].store, images.get(name), list(dict.fromkeys(wanted[name]))) for name in sets
    }

    def described(k: int) -> str:
        return store.class_name(k) if store.manifest.class_names else f"class {k}"

    found = []
    for name, rows in shown.items():
        for row, other in rows:
            key, label = keys[name][row].as_py(), int(sets[name].label[row])
            twin = None if other is None else keys[KNOWN][other].as_py()
            found.append(
                {
                    "method": method,
                    "set": name,
                    "key": key,
                    "label": described(label) if label >= 0 else "",
                    "pred": described(int(sets[name].pred[row])),
                    "score": float(sets[name].scores[method][row]),
                    "jpeg": copies[name].get(key),
                    "beside_key": twin,
                    "beside_score": None if other is None else float(known.scores[method][other]),
                    "beside_jpeg": None if twin is None else copies[KNOWN].get(twin),
                }
            )
    return pa.Table.from_pylist(found, schema=PICTURES_SCHEMA)


def _typical(known: SetScores, method: str, k: int) -> int | None:
    """The row of median score among the correctly classified knowns of a class."""
    rows = np.flatnonzero((known.label == k) & (known.pred == k))
    if not len(rows):
        return None
    return int(rows[np.argsort(known.scores[method][rows], kind="stable")[len(rows) // 2]])


def _keys(folder: str, method: str, name: str) -> pa.ChunkedArray:
    with open_input(join(folder, score_file(method, name))) as handle:
        return pq.read_table(handle, columns=["key"])["key"]


def _small_copies(store: Store, given: str | None, keys: list[str]) -> dict[str, bytes]:
    """Small JPEGs of those images of a store that can be read, by key."""
    from ghost_ray.sources import decode, find_images, open_source

    config: Mapping[str, Any] = store.manifest.config
    found: dict[str, bytes] = {}
    try:
        place = given or _reachable(config.get("data"), store.uri)
        root = _reachable(config.get("root"), given or store.uri)
        if place is None or (root is None and config.get("root") is not None):
            return found
        source = open_source(place, config.get("format"), root)
        for image in source.reader.read(find_images(source, keys)):
            if image.data is not None:
                picture = decode(image.data)
                picture.thumbnail((_PIXELS, _PIXELS))
                stream = io.BytesIO()
                picture.save(stream, "JPEG", quality=_QUALITY)
                if stream.tell() <= MOST_BYTES:
                    found[image.key] = stream.getvalue()
    except (OSError, ValueError, KeyError, TypeError, GhostRayError, pa.ArrowException):
        return found  # an image that cannot be read is shown by its key
    return found


def _reachable(place: object, named: str) -> str | None:
    """A place that a manifest names, if it is on this machine or in the bucket of ``named``, which the caller gave.

    The options, and with them the host that is asked, are the caller's.
    """
    if not isinstance(place, str) or is_local(place):
        return place if isinstance(place, str) else None
    bucket, below = _bucket(place)
    if is_local(named) or bucket != _bucket(named)[0]:
        return None
    _, mark, options = named.partition("?")
    return f"{bucket}/{below}{mark}{options}"


def _bucket(place: str) -> tuple[str, str]:
    """Scheme and bucket of a remote place without credentials, and the path below them."""
    scheme, _, rest = redact(place).partition("?")[0].partition("://")
    bucket, _, below = rest.partition("/")
    return f"{scheme}://{bucket}", below
