"""Images of the most informative samples: unknowns accepted with high scores, and rejected knowns.

The evaluation chose them and keeps small copies. No image and no store is opened here, whatever a manifest names: the
evaluation may come from anyone. If the images could not be read, only their keys are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.files import join, open_input
from ghost_ray.jobs.evaluate.evaluate_plan import KNOWN
from ghost_ray.jobs.evaluate.illustrating import MOST_BYTES, PICTURES, PICTURES_SCHEMA, SHOWN
from ghost_ray.jobs.evaluate.scoring import score_file
from ghost_ray.report.document import Gallery, Picture, Pictured
from ghost_ray.report.numbers import decimal
from ghost_ray.scorers import title_of

_JPEG = b"\xff\xd8\xff"


@dataclass(frozen=True)
class Scored:
    """One set under one method, as the evaluation wrote it."""

    label: np.ndarray
    pred: np.ndarray
    score: np.ndarray


def read_scored(folder: str, method: str, name: str) -> Scored | None:
    """The scores of a set; None if they are not there."""
    try:
        with open_input(join(folder, "scores", score_file(method, name))) as handle:
            table = pq.read_table(handle, columns=["label", "pred", "score"])
        return Scored(*(table[column].to_numpy() for column in ("label", "pred", "score")))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


def galleries(evaluations: dict[str, str], method: str, identity: str) -> list[Gallery]:
    """The knowns with the lowest and the unknowns with the highest scores; none for stores made from arrays.

    Parameters
    ----------
    evaluations : dict of unknown set to folder
        The folder with the scores of the method on that set.
    """
    found: list[Gallery] = []
    for order, (unknown, folder) in enumerate(evaluations.items()):
        samples = _samples(folder, method)
        if not found and (knowns := samples.get(KNOWN)):
            found.append(_rejected_knowns(knowns, method, identity))
        if unknowns := samples.get(unknown):
            found.append(_accepted_unknowns(unknowns, method, unknown, f"{identity}-{order + 1}"))
    return found


def _samples(folder: str, method: str) -> dict[str, list[dict[str, Any]]]:
    """The samples that the evaluation chose, by set; empty if there are none, or not of this method."""
    try:
        with open_input(join(folder, PICTURES)) as handle:
            table = pq.read_table(handle, columns=PICTURES_SCHEMA.names).cast(PICTURES_SCHEMA)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return {}
    found: dict[str, list[dict[str, Any]]] = {}
    for sample in table.to_pylist():
        if sample["method"] == method and len(of_set := found.setdefault(str(sample["set"]), [])) < SHOWN:
            of_set.append(sample)
    return found


def _accepted_unknowns(samples: list[dict[str, Any]], method: str, name: str, identity: str) -> Gallery:
    """The unknowns with the highest scores, each beside a known of its predicted class."""
    shown = []
    for sample in samples:
        taken_for = sample["pred"]
        first = _picture(sample, "", f"classified as {taken_for}, score {_score(sample['score'])}")
        second = None
        if sample["beside_key"] is not None:
            second = _picture(sample, "beside_", f"a known of {taken_for}, score {_score(sample['beside_score'])}")
        shown.append(Pictured(first, second))
    return Gallery(
        id=f"{identity}-accepted",
        title=f"Accepted with the highest scores: {name}",
        caption=f"The {len(shown)} samples of {name} that {title_of(method)} scores highest, each on the left. On "
        "the right is a correctly classified known of the predicted class, the one with the median score. A sample "
        "that really shows this class is not an unknown." + _absent(shown, name),
        items=shown,
    )


def _rejected_knowns(samples: list[dict[str, Any]], method: str, identity: str) -> Gallery:
    """The knowns with the lowest scores."""
    shown = []
    for sample in samples:
        label, pred = sample["label"], sample["pred"]
        taken = "classified correctly" if label == pred else f"classified as {pred}"
        shown.append(Pictured(_picture(sample, "", f"{label}, {taken}, score {_score(sample['score'])}")))
    return Gallery(
        id=f"{identity}-rejected",
        title="Knowns rejected first",
        caption=f"The {len(shown)} knowns that {title_of(method)} scores lowest: any threshold that rejects a known "
        "rejects these." + _absent(shown, KNOWN),
        items=shown,
    )


def _picture(sample: dict[str, Any], which: str, note: str) -> Picture:
    jpeg = sample[f"{which}jpeg"]
    usable = jpeg is not None and jpeg.startswith(_JPEG) and len(jpeg) <= MOST_BYTES
    return Picture(jpeg if usable else None, str(sample[f"{which}key"]), note)


def _score(score: float | None) -> str:
    return "−∞" if score is not None and np.isneginf(score) else decimal(score, 4)


def _absent(shown: list[Pictured], name: str) -> str:
    pictures = [picture for item in shown for picture in (item.picture, item.beside) if picture is not None]
    if any(picture.jpeg for picture in pictures):
        return ""
    return f" Only the keys are shown; evaluate with `--images {name}=PLACE` to show the images."
