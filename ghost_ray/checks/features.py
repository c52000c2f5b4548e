"""Are the features what the head reads, row by row, and does no dimension outweigh all others?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ghost_ray.checks.agreement import Agreement, LabelCounts, percent
from ghost_ray.gaussians import Gaussians
from ghost_ray.rows import Floats, Ints, Rows, Singles

_FEWEST_ROWS = 50
_SAME_LENGTH = 1e-3  # spread of the rows' lengths, relative
_STANDARD = 0.1  # how far mean and standard deviation of a sample may be from 0 and 1
_NEARLY_ALL = 0.95
_FEWEST_DIMENSIONS = 16
_FEW = 50  # a fiftieth of the dimensions is few
_NAMED = 5
_CHUNK = 256


@dataclass(frozen=True)
class OtherOrder:
    """Features and logits whose rows are not in the same order; ``logits_alone``: features and labels are."""

    note: str
    logits_alone: bool


def of_features(rows: Rows) -> list[str]:
    """Notes on the features of a sample, if it is not certain that they are the input of the head."""
    if len(rows) < _FEWEST_ROWS:
        return []
    return [*_label_column(rows), *_scale(rows.embedding)]


def _label_column(rows: Rows) -> list[str]:
    label = rows.label[rows.label >= 0]
    if len(label) < _FEWEST_ROWS or (label == label[0]).all():
        return []
    same = np.flatnonzero((rows.embedding[rows.label >= 0] == label[:, None]).all(axis=0))
    return [f"column {same[0]} of the features holds the labels: leave it out"] if len(same) else []


def _scale(embedding: Singles) -> list[str]:
    length = np.sqrt(np.einsum("nd,nd->n", embedding, embedding, dtype=np.float64))
    if abs(length.mean() - 1) <= _SAME_LENGTH and length.std() <= _SAME_LENGTH:
        return [
            f"every checked row of the features ({len(length):,}) has length 1: if they were normalised after the "
            "network, they are not what its last layer reads"
        ]
    mean, std = embedding.mean(axis=0, dtype=np.float64), embedding.std(axis=0, dtype=np.float64)
    varying = std > 0
    standard = (np.abs(mean) <= _STANDARD) & (np.abs(std - 1) <= _STANDARD)
    if varying.sum() > 1 and standard[varying].mean() >= _NEARLY_ALL:
        return [
            "the features have mean 0 and standard deviation 1 in nearly every dimension: if they were standardised "
            "after the network, the head does not fit them, and every set must be standardised with the same numbers"
        ]
    return []


def other_order(rows: Rows) -> OtherOrder | None:
    """A note if the rows of a sample's features do not match its predictions."""
    by_pred = _nearest_mean(rows.embedding, rows.pred)
    if by_pred is None or not by_pred.is_chance:
        return None
    labelled = rows.take(rows.label >= 0)
    by_label = _nearest_mean(labelled.embedding, labelled.label)
    logits_alone = by_label is not None and not by_label.is_chance
    guess = (
        "the logits seem to be in another order than features and labels"
        if logits_alone
        else "features and logits do not seem to be in the same order"
    )
    return OtherOrder(
        f"the nearest class mean of the features is that of the predicted class in {percent(by_pred.share)} of the "
        f"rows, {by_pred.beside_chance}: the rows of {guess}",
        logits_alone,
    )


def _nearest_mean(embedding: Singles, group: Ints) -> Agreement | None:
    """How often the class mean that is nearest to a row is the row's own; means are of half the rows of a class.

    None if too few classes have a mean, or too few rows are left.
    """
    if not len(group):
        return None
    # Random halves: rows may be ordered by something that the halves would then share.
    mixed = np.random.default_rng(0).permutation(len(group))
    order = mixed[np.argsort(group[mixed], kind="stable")]
    fitted = np.zeros(len(group), bool)
    fitted[order[::2]] = True
    classes = np.unique(group[fitted])
    rest = np.flatnonzero(~fitted & np.isin(group, classes))
    if len(classes) < 2 or len(rest) < _FEWEST_ROWS // 2:
        return None
    spread = embedding.std(axis=0, dtype=np.float64)
    scaled = (embedding / np.where(spread > 0, spread, 1)).astype(np.float32)
    means = np.stack([scaled[fitted & (group == k)].mean(axis=0) for k in classes])
    # |a − m|² without the |a|² that all means share.
    nearest = np.argmin((means * means).sum(axis=1) - 2 * scaled[rest] @ means.T, axis=1)
    return Agreement.of(LabelCounts.of(np.searchsorted(classes, group[rest]), nearest), len(classes))


def of_distances(rows: Rows, gaussians: Gaussians) -> list[str]:
    """A note where a few dimensions make up most of GHOST's s, on rows that were not fitted on."""
    rows = rows.take(gaussians.present[rows.pred])
    if len(rows) < _FEWEST_ROWS or rows.embedding.shape[1] < _FEWEST_DIMENSIONS:
        return []
    weight = _z_by_dimension(rows, gaussians)
    order = np.argsort(-weight, kind="stable")
    share = np.cumsum(weight[order]) / weight.sum() if weight.sum() > 0 else np.zeros(len(weight))
    few = int(np.searchsorted(share, 0.5)) + 1
    if share[-1] == 0 or few > max(1, len(weight) // _FEW):
        return []
    named = ", ".join(map(str, order[:few][:_NAMED])) + (", …" if few > _NAMED else "")
    makes, its = ("dimension makes", "its") if few == 1 else ("dimensions make", "their")
    return [
        f"ghost: {few} of {len(weight):,} {makes} up {percent(float(share[few - 1]))} of the summed z-scores of known "
        f"({named}): {its} training values vary little within a class, compared with those of other rows"
    ]


def _z_by_dimension(rows: Rows, gaussians: Gaussians) -> Floats:
    """Σ over the rows of |z| in each dimension, [D]."""
    total = np.zeros(rows.embedding.shape[1])
    for start in range(0, len(rows), _CHUNK):
        pred = rows.pred[start : start + _CHUNK]
        away = rows.embedding[start : start + _CHUNK].astype(np.float64) - gaussians.mean[pred]
        total += (np.abs(away) * gaussians.inverse_std[pred]).sum(axis=0)
    return total
