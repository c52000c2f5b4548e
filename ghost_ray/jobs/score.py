"""``score``: γ for every row of a store or every image, and whether it is accepted.

Plan → choose the threshold → score row groups, on Ray if a cluster is named and else in threads → one Parquet file with
key, pred, score, accepted. The threshold is stored with the model, so that a service accepts what this job accepts.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ghost_ray.checks import of_negative_top_logits
from ghost_ray.cluster import map_ordered, workers
from ghost_ray.config import DeviceConfig, ExtractConfig, RayJobConfig, ScoreConfig
from ghost_ray.errors import InputError, one_line, redact
from ghost_ray.files import beside, output_file, remove_tree
from ghost_ray.files.manifest import of_unnamed_networks, require_same_network
from ghost_ray.gaussians import Gaussians, ghost_score
from ghost_ray.metrics import ROUNDING, threshold_at_known
from ghost_ray.model import Model, Threshold, write_threshold
from ghost_ray.progress import progress
from ghost_ray.registry.versions import is_in_version
from ghost_ray.rows import Head
from ghost_ray.store import UNKNOWN, RowGroups, Store

SCHEMA = pa.schema([("key", pa.string()), ("pred", pa.int32()), ("score", pa.float64()), ("accepted", pa.bool_())])
# A service computes in float32: if the threshold were exactly a sample's score, rounding would decide.
_SINGLE_PRECISION = 2e-6


class ScoreCounts(TypedDict):
    """How many rows were accepted."""

    rows: int
    accepted: int
    knowns: int  # rows with a label
    knowns_accepted: int
    knowns_correct_and_accepted: int
    negative_top_logits: int  # rows whose γ is below zero, and grows with the distance


class ScoreResult(ScoreCounts):
    """What ``score`` returns."""

    scores: str
    model: str
    threshold: float
    rule: str
    share: NotRequired[float]
    store: NotRequired[str]  # the threshold was chosen on
    stored: bool  # whether the threshold is new and was stored with the model
    failures: int
    classes_without_gaussian: list[str]
    notes: list[str]


def run(config: ScoreConfig) -> ScoreResult:
    """Score as configured; returns counts, the threshold and how it was chosen."""
    model = Model.open(config.gaussians, "gaussians")
    rule = _rule(config, model)
    # Chosen in a version, a threshold is used and not stored: a version is never changed.
    stored = rule.is_new and not is_in_version(config.gaussians)
    with output_file(config.out, overwrite=config.overwrite) as handle, _rows_to_score(config, model) as store:
        with workers(config):
            threshold = rule.settle(model.gaussians)
            counts = _write_scores(store, model.gaussians, threshold["threshold"], handle)
        if stored:
            _store_threshold(model, threshold)
        failures = store.manifest.failures if config.data else 0
        notes = of_unnamed_networks("the model", model.manifest.network, {"the store": store.manifest.network})
    missing = [_class_name(model, index) for index in model.gaussians.missing.tolist()]
    return {
        "scores": config.out,
        "model": config.gaussians,
        **threshold,
        "stored": stored,
        **counts,
        "failures": failures,
        "classes_without_gaussian": missing,
        "notes": notes + of_negative_top_logits({"rows": (counts["negative_top_logits"], counts["rows"])}),
    }


@dataclass(frozen=True)
class Scored:
    """Some rows with their γ."""

    key: pa.Array
    label: np.ndarray  # [n]
    pred: np.ndarray  # [n]
    score: np.ndarray  # [n]


@dataclass(frozen=True)
class Rule:
    """The source of the threshold: given, already stored with the model, or chosen on the samples of a store."""

    name: str  # threshold, stored, accept-known or accept-fpr
    value: float
    store: Store | None = None
    stored: Threshold | None = None

    @property
    def is_new(self) -> bool:
        return self.stored is None

    def settle(self, gaussians: Gaussians) -> Threshold:
        """The threshold and how it was chosen, as in thresholds.json."""
        if self.stored is not None:
            return self.stored
        if self.store is None:
            return {"threshold": self.value, "rule": self.name}
        scores = np.concatenate([part.score for part in _score_store(self.store, gaussians, "choose threshold")])
        choose = keeping_knowns if self.name == "accept-known" else rejecting_unknowns
        return {
            "threshold": choose(scores, self.value, redact(self.store.uri)),
            "rule": self.name,
            "share": self.value,
            "store": redact(self.store.uri),
            "rows": len(scores),
        }


def _rule(config: ScoreConfig, model: Model) -> Rule:
    """What the options say about the threshold, with the store they name opened and checked."""
    if config.threshold is not None:
        return Rule("threshold", config.threshold)
    if config.accept_known is not None and config.known is not None:
        store = _open(config.known, "known", model, verify=config.verify)
        if not config.accept_known > 0:
            raise InputError("accept_known", config.accept_known, "keeps no known at all", "for example 0.95")
        if any((file.groups.first_label == UNKNOWN).any() for file in store.files):
            raise InputError("known", redact(store.uri), "has rows without a label", "extract it without `unknown`")
        return Rule("accept-known", config.accept_known, store)
    if config.accept_fpr is not None and config.unknown is not None:
        store = _open(config.unknown, "unknown", model, verify=config.verify)
        if any((file.groups.last_label != UNKNOWN).any() for file in store.files):
            raise InputError("unknown", redact(store.uri), "has rows with a label", "extract it with `unknown`")
        return Rule("accept-fpr", config.accept_fpr, store)
    stored = model.thresholds()
    if stored is None:
        raise InputError(
            "gaussians",
            redact(config.gaussians),
            "has no threshold stored with it",
            "give `threshold=X`, `accept_known=0.95` `known=STORE` or `accept_fpr=0.1` `unknown=STORE`",
        )
    return Rule("stored", float(stored["threshold"]), stored=stored)


def keeping_knowns(scores: np.ndarray, share: float, store: str) -> float:
    """The highest threshold that accepts a share of the knowns: just below the last one needed."""
    last_needed = threshold_at_known(scores, share)
    if math.isinf(last_needed):
        outside = np.isneginf(scores).mean()
        problem = f"cannot be kept: {outside:.2%} of the knowns of {store} are predicted as classes without a Gaussian"
        raise InputError("accept_known", share, problem, f"at most {1 - outside:.4f}, or fit on more images")
    return last_needed - _SINGLE_PRECISION * abs(last_needed)


def rejecting_unknowns(scores: np.ndarray, share: float, store: str) -> float:
    """The lowest threshold that accepts at most a share of the unknowns: just above the first one too many."""
    allowed = math.floor(share * len(scores) + ROUNDING)
    first_rejected = float(np.sort(scores)[::-1][allowed]) if allowed < len(scores) else -math.inf
    if math.isinf(first_rejected):
        return -float(np.finfo(np.float32).max)
    return first_rejected + _SINGLE_PRECISION * abs(first_rejected)


def _store_threshold(model: Model, threshold: Threshold) -> None:
    try:
        write_threshold(model.uri, threshold)
    except OSError as error:
        problem = f"the threshold cannot be stored with it: {one_line(error)}"
        raise InputError("gaussians", redact(model.uri), problem, "make it writable, or copy it") from None


def _open(uri: str, field: str, model: Model, *, verify: bool = False) -> Store:
    store = Store.open(uri, field, verify=verify)
    network = model.manifest.network
    require_same_network(network, f"the model {redact(model.uri)}", store.manifest.network, redact(uri), field)
    if store.rows == 0:
        raise InputError(field, redact(uri), "is empty: it has no rows", "extract or import some images into it")
    return store


@contextlib.contextmanager
def _rows_to_score(config: ScoreConfig, model: Model) -> Iterator[Store]:
    """The store that was named, or one made of the images for as long as the block lasts."""
    if config.store is not None:
        yield _open(config.store, "store", model, verify=config.verify)
        return
    from ghost_ray.backbone import name_from_manifest
    from ghost_ray.jobs.extract.job import extract
    from ghost_ray.jobs.extract.plan import make_plan

    # Beside the result rather than in a local temporary folder: workers on other machines write into it.
    place = beside(config.out, ".store")
    network = model.manifest.network
    settings = ExtractConfig.model_validate(
        {
            "data": config.data,
            "model": config.network or name_from_manifest(network.name, model.uri),
            **config.model_dump(include=set(DeviceConfig.model_fields)),
            "unknown": True,
            "out": place,
            "overwrite": True,
            **config.model_dump(include=set(RayJobConfig.model_fields)),
        }
    )
    # Fail before a million images are embedded.
    plan = make_plan(settings, network.restricted_to)
    require_same_network(network, f"the model {redact(model.uri)}", plan.network, settings.model, "network")
    extract(settings, plan)
    try:
        yield _open(place, "data", model)
    finally:
        remove_tree(place)


def _write_scores(store: Store, gaussians: Gaussians, threshold: float, handle: pa.NativeFile) -> ScoreCounts:
    """Stream key, pred, score, accepted into ``handle``; returns the counts."""
    counts: ScoreCounts = {
        "rows": 0,
        "accepted": 0,
        "knowns": 0,
        "knowns_accepted": 0,
        "knowns_correct_and_accepted": 0,
        "negative_top_logits": 0,
    }
    with pq.ParquetWriter(handle, SCHEMA) as writer:
        for part in _score_store(store, gaussians, "score"):
            accepted = part.score >= threshold
            columns = [part.key, pa.array(part.pred), pa.array(part.score), pa.array(accepted)]
            writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA))
            known = part.label != UNKNOWN
            counts["rows"] += len(accepted)
            counts["accepted"] += int(accepted.sum())
            counts["knowns"] += int(known.sum())
            counts["knowns_accepted"] += int((known & accepted).sum())
            counts["knowns_correct_and_accepted"] += int((accepted & (part.label == part.pred)).sum())
            counts["negative_top_logits"] += int(((part.score < 0) & np.isfinite(part.score)).sum())
    return counts


def _score_store(store: Store, gaussians: Gaussians, title: str) -> Iterator[Scored]:
    """The scores of every row, some row groups at a time in the store's order."""
    with progress(title, store.rows, "rows") as shown:
        for groups, part in map_ordered(_score_groups, store.row_groups(), store, store.head(), gaussians):
            yield part
            shown.advance(groups.rows)


def _score_groups(groups: RowGroups, store: Store, head: Head | None, gaussians: Gaussians) -> Scored:
    rows, key = store.read_keyed(groups)
    try:
        score = ghost_score(rows, gaussians, head).gamma
    except ValueError as error:
        store.refuse_non_finite(rows, groups)
        raise InputError(
            store.field, redact(store.uri), f"rows/{groups.file}: {one_line(error)}", "extract again"
        ) from None
    return Scored(key, rows.label, rows.pred, score)


def _class_name(model: Model, index: int) -> str:
    names = model.manifest.class_names
    return names[index] if names is not None and index < len(names) else str(index)
