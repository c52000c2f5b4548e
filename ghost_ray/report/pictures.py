"""Images of the most informative samples: unknowns accepted with high scores, and rejected knowns.

Thumbnails are read from the source of a store's images. If the images are gone, or the store was made from arrays, only
the keys are shown.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.errors import GhostRayError
from ghost_ray.files import MANIFEST, join, open_input, read_sealed
from ghost_ray.jobs.evaluate.scoring import score_file
from ghost_ray.report.document import Gallery, Picture, Pictured
from ghost_ray.report.numbers import decimal
from ghost_ray.scorers import title_of

KNOWN = "known"
SHOWN = 8  # of each set
_PIXELS = 112
_QUALITY = 72
_MOST_BYTES = 12_000  # of a thumbnail; one that is larger is left out


@dataclass(frozen=True)
class Scored:
    """One set under one method, as the evaluation wrote it."""

    store: str | None
    key: pa.ChunkedArray
    label: np.ndarray
    pred: np.ndarray
    score: np.ndarray


def read_scored(folder: str, method: str, name: str) -> Scored | None:
    """The scores of a set; None if they are not there."""
    try:
        with open_input(join(folder, "scores", score_file(method, name))) as handle:
            table = pq.read_table(handle, columns=["key", "label", "pred", "score"])
        config = read_sealed(join(folder, MANIFEST))["config"]
        store = config["known"] if name == KNOWN else config["unknown"][name]
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None
    label, pred, score = (table[column].to_numpy() for column in ("label", "pred", "score"))
    return Scored(str(store), table["key"], label, pred, score)


def galleries(evaluations: dict[str, str], method: str, identity: str) -> list[Gallery]:
    """The knowns with the lowest and the unknowns with the highest scores; none for stores made from arrays.

    Parameters
    ----------
    evaluations : dict of unknown set to folder
        The folder with the scores of the method on that set.
    """
    found: list[Gallery | None] = []
    classes: list[str] = []
    for order, (unknown, folder) in enumerate(evaluations.items()):
        known = read_scored(folder, method, KNOWN)
        if known is None or not _made_from_images(known.store):
            continue
        if not found:
            classes = class_names(known.store)
            found.append(rejected_knowns(folder, method, classes, identity))
        found.append(accepted_unknowns(folder, method, unknown, classes, f"{identity}-{order + 1}"))
    return [gallery for gallery in found if gallery is not None]


def accepted_unknowns(folder: str, method: str, name: str, classes: list[str], identity: str) -> Gallery | None:
    """The unknowns with the highest scores, each beside a known of its predicted class."""
    unknown, known = read_scored(folder, method, name), read_scored(folder, method, KNOWN)
    if unknown is None or known is None or not len(unknown.score):
        return None
    surest = np.argsort(-unknown.score, kind="stable")[:SHOWN]
    beside = [_typical(known, int(unknown.pred[row])) for row in surest]
    shots = thumbnails(unknown.store, [unknown.key[int(row)].as_py() for row in surest])
    twins = thumbnails(known.store, [known.key[row].as_py() for row in beside if row is not None])
    shown = []
    for row, other in zip(surest.tolist(), beside, strict=True):
        taken_for = _class(classes, int(unknown.pred[row]))
        key = unknown.key[row].as_py()
        first = Picture(shots.get(key), key, f"classified as {taken_for}, score {decimal(unknown.score[row], 4)}")
        second = None
        if other is not None:
            twin = known.key[other].as_py()
            second = Picture(twins.get(twin), twin, f"a known of {taken_for}, score {decimal(known.score[other], 4)}")
        shown.append(Pictured(first, second))
    return Gallery(
        id=f"{identity}-accepted",
        title=f"Accepted with the highest scores: {name}",
        caption=f"The {len(shown)} samples of {name} that {title_of(method)} scores highest, each on the left. On "
        "the right is a correctly classified known of the predicted class, the one with the median score. A sample "
        "that really shows this class is not an unknown." + _absent(shots, twins),
        items=shown,
    )


def rejected_knowns(folder: str, method: str, classes: list[str], identity: str) -> Gallery | None:
    """The knowns with the lowest scores."""
    known = read_scored(folder, method, KNOWN)
    if known is None or not len(known.score):
        return None
    lowest = np.argsort(known.score, kind="stable")[:SHOWN]
    keys = [known.key[int(row)].as_py() for row in lowest]
    shots = thumbnails(known.store, keys)
    shown = []
    for row, key in zip(lowest.tolist(), keys, strict=True):
        label, pred = _class(classes, int(known.label[row])), _class(classes, int(known.pred[row]))
        taken = "classified correctly" if label == pred else f"classified as {pred}"
        score = "−∞" if np.isneginf(known.score[row]) else decimal(known.score[row], 4)
        shown.append(Pictured(Picture(shots.get(key), key, f"{label}, {taken}, score {score}")))
    return Gallery(
        id=f"{identity}-rejected",
        title="Knowns rejected first",
        caption=f"The {len(shown)} knowns that {title_of(method)} scores lowest: any threshold that rejects a known "
        "rejects these." + _absent(shots),
        items=shown,
    )


def _typical(known: Scored, k: int) -> int | None:
    """The row of median score among the correctly classified knowns of a class."""
    rows = np.flatnonzero((known.label == k) & (known.pred == k))
    if not len(rows):
        return None
    return int(rows[np.argsort(known.score[rows], kind="stable")[len(rows) // 2]])


def _class(names: list[str], index: int) -> str:
    return names[index] if 0 <= index < len(names) else f"class {index}"


def _absent(*shots: dict[str, bytes]) -> str:
    return "" if any(shots) else " The images cannot be reached from here; these are their keys."


def class_names(store: str | None) -> list[str]:
    """The names of a store's classes; empty where they are not known."""
    names = _manifest(store).get("class_names")
    return [str(name) for name in names] if isinstance(names, list) else []


def _made_from_images(store: str | None) -> bool:
    config = _manifest(store).get("config")
    return isinstance(config, dict) and "data" in config


def _manifest(store: str | None) -> dict[str, object]:
    try:
        content = read_sealed(join(store or "", MANIFEST))
    except (OSError, ValueError, GhostRayError):
        return {}
    return content if isinstance(content, dict) else {}


def thumbnails(store: str | None, keys: list[str]) -> dict[str, bytes]:
    """Small JPEGs of those images of a store that can still be read, by key."""
    from ghost_ray.sources import decode, find_images, open_source

    found: dict[str, bytes] = {}
    try:
        if not _made_from_images(store):
            return {}
        config: Any = _manifest(store)["config"]
        source = open_source(config["data"], config.get("format"), config.get("root"))
        for image in source.reader.read(find_images(source, keys)):
            if image.data is not None:
                picture = decode(image.data)
                picture.thumbnail((_PIXELS, _PIXELS))
                stream = io.BytesIO()
                picture.save(stream, "JPEG", quality=_QUALITY)
                if stream.tell() <= _MOST_BYTES:
                    found[image.key] = stream.getvalue()
    except (OSError, ValueError, KeyError, TypeError, GhostRayError, pa.ArrowException):
        return found  # an image that cannot be read is shown by its key
    return found
