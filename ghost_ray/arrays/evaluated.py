"""``ghost_ray.evaluate``: GHOST beside its rivals on arrays of knowns and unknowns."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ghost_ray import metrics
from ghost_ray.arrays.ghost_model import ARRAYS
from ghost_ray.arrays.given import Array, GivenRows, given_head, given_rows, head_note, recovered_head
from ghost_ray.arrays.opened import OpenStore
from ghost_ray.arrays.result_folder import ResultFolder, Scratch
from ghost_ray.cluster import threads
from ghost_ray.config import EvaluateConfig, build
from ghost_ray.errors import InputError
from ghost_ray.files import join, read_bytes
from ghost_ray.jobs.evaluate import EvaluationManifest, run_plan
from ghost_ray.jobs.evaluate.evaluate_plan import ALL, named_methods, plan_for
from ghost_ray.jobs.evaluate.findings import Evaluation, PairResult, Significance
from ghost_ray.jobs.evaluate.result_tables import to_html, to_markdown
from ghost_ray.jobs.evaluate.scoring import file_name
from ghost_ray.progress import quietly
from ghost_ray.rows import Head
from ghost_ray.scorers import Scorer
from ghost_ray.store import Store

if TYPE_CHECKING:
    import pandas as pd

Labelled = tuple[Array, Array, Array] | OpenStore  # features, labels, logits
Unlabelled = tuple[Array, Array] | OpenStore  # features, logits


class OpenSetEvaluation(ResultFolder):
    """An evaluation: `results` has one object per method and unknown set, with every metric under its name."""

    manifest_kind = EvaluationManifest
    made_by = "ghost-ray evaluate … --out DIR"

    def __init__(self, uri: str, scratch: Scratch | None = None) -> None:
        super().__init__(uri, scratch)
        self.summary: Evaluation = self._json("metrics.json")

    @property
    def results(self) -> list[PairResult]:
        """The objects of metrics.json, one per method and unknown set."""
        return self.summary["results"]

    @property
    def closed_set_accuracy(self) -> float:
        return self.summary["closed_set_accuracy"]

    @property
    def notes(self) -> list[str]:
        """What a reader of the results should know, one sentence each."""
        return self.summary["notes"]

    @property
    def significance(self) -> Significance:
        """Paired tests of every rival against GHOST, as in significance.json."""
        found: Significance = self._json("significance.json")
        return found

    def curves(self) -> pd.DataFrame:
        """Points of the OSCR, ROC and unfairness curves: method, unknown, curve, x (the FPR), y."""
        frame: pd.DataFrame = self._table("curves.parquet").to_pandas()
        return frame

    def to_pandas(self) -> pd.DataFrame:
        """One row per method and unknown set, one column per metric."""
        import pandas as pd

        fields = [metric.field for metric in metrics.as_read() if metric.field in self.results[0]]
        return pd.DataFrame(self.results, columns=["method", "unknown", *fields])

    def to_openood(self, method: str = "ghost") -> str:
        """One method as CSV in the columns of OpenOOD, in percent; the positives of its FPR@95 are the unknowns."""
        if method not in self.summary["methods"]:
            raise InputError("method", method, f"is not one of {', '.join(self.summary['methods'])}")
        return read_bytes(join(self._uri, "openood", f"{file_name(method)}.csv")).decode()

    def __repr__(self) -> str:
        return to_markdown(self.summary)

    def _repr_html_(self) -> str:
        return to_html(self.summary)


def evaluate(
    *,
    fit: Labelled,
    known: Labelled,
    unknown: Mapping[str, Unlabelled],
    methods: Sequence[str] | str = EvaluateConfig.model_fields["methods"].default,
    head: tuple[Array, Array] | Any | None = None,
    group: Mapping[str, Sequence[str]] | None = None,
    draws: int = 10,
    draw_size: int = 1000,
    seed: int = 0,
    model: str = "imported",
    class_names: Sequence[str] | None = None,
) -> OpenSetEvaluation:
    """Compare methods on known and unknown rows, as ``ghost-ray evaluate`` does.

    Parameters
    ----------
    fit, known : tuple of (features, labels, logits), or an open store
        Arrays [N, D], [N] and [N, K], numpy or torch: training rows to fit on, and test rows.
    unknown : mapping of name to (features, logits), or to an open store
        Rows that belong to no class.
    methods : sequence of str, or "all"
        With options after a colon: ``["ghost", "msp", "knn:k=10", "package.module:Class"]``.
    head : (weight [K, D], bias [K]) or torch.nn.Linear, optional
        The last linear layer, which some methods need. Left out, with a note, where the logits do not follow from it.
        Without it, such methods, where they are named, take the only one that makes the logits of the features, if
        there is one; a note says so.
    group : mapping of name to names, optional
        Unknown sets to average under one name.
    draws, draw_size, seed : int, default 10, 1000, 0
        Of the significance tests; the seed is that of all random choices.
    model, class_names
        As for `ghost_ray.Ghost`.

    Returns
    -------
    OpenSetEvaluation
    """
    if not isinstance(unknown, Mapping) or not unknown:
        raise InputError("unknown", "", "must be a dict of name to (features, logits), with at least one name")
    scratch = Scratch()
    options = {
        "methods": [methods] if isinstance(methods, str) else list(methods),
        "group": {name: ",".join(members) for name, members in (group or {}).items()},
        "draws": draws,
        "draw_size": draw_size,
        "seed": seed,
        "out": scratch.out,
    }
    places = {"fit": ARRAYS, "known": ARRAYS, "unknown": dict.fromkeys(unknown, ARRAYS)}
    config = build(EvaluateConfig, {**options, **places})
    sets = _Sets(model, class_names, head)
    stores = sets.store(fit, "fit", "fit"), sets.store(known, "known", "known")
    unknowns = {name: sets.store(rows, "unknown", f"unknown[{name!r}]") for name, rows in unknown.items()}
    in_memory = not any(isinstance(given, OpenStore) for given in (fit, known, *unknown.values()))
    with quietly(), threads() if in_memory else contextlib.nullcontext():
        # `all` are those that can be had with what was given, as for the command.
        recover = head is None and in_memory and ALL not in config.methods
        found = sets.recovered(named_methods(config.methods)) if recover else None
        plan = plan_for(config, *stores, unknowns, found, sets.without_head())
        plan.notes.extend(sets.notes)
        run_plan(config, plan)
    return OpenSetEvaluation(scratch.out, scratch)


class _Sets:
    """Arrays as stores of one network: those of the fit say how many classes and dimensions there are."""

    def __init__(self, model: str, class_names: Sequence[str] | None, head: Any) -> None:
        self._model, self._class_names, self._head = model, class_names, head
        self._shape: tuple[int, int] | None = None
        self._given: list[GivenRows] = []
        self._left_out: list[str] = []  # why the head was, for each set
        self.notes: list[str] = []

    def store(self, given: Any, field: str, shown: str) -> Store:
        if isinstance(given, OpenStore):
            self._shape = self._shape or (given.store.classes, given.store.dimensions)
            return Store(given.store.uri, given.store.manifest, given.store.files, field)
        rows = self._rows(given, field, shown)
        shape = (rows.classes, rows.features.shape[1])
        self._shape = self._shape or shape
        if shape != self._shape:
            wanted = f"K={self._shape[0]}, D={self._shape[1]} as in `fit`"
            raise InputError(shown, "", f"has K={shape[0]} classes and D={shape[1]} dimensions, expected {wanted}")
        head = given_head(self._head, *shape)
        note = head_note(head, rows)
        if note is not None:
            self.notes.append(f"{shown}: {note}")
            self._left_out.append(self.notes[-1])
        self._given.append(rows)
        return rows.store(self._model, field, None if note is not None else head)

    def recovered(self, methods: Mapping[str, Scorer]) -> Head | None:
        """The head that features and logits tell of, where a method needs it and it is right for every array."""
        if not self._given or not any(scorer.needs_head for scorer in methods.values()):
            return None
        first, *others = self._given
        head = None if first.logits is None else recovered_head(first.features, first.logits)
        if head is None or any(head_note(head, rows) is not None for rows in others):
            return None
        self.notes.append("the head was not given: it was recovered from features and logits by least squares")
        return head

    def without_head(self) -> str:
        """What to do where a method needs the head."""
        if self._left_out:
            return f"give the right `head`: {self._left_out[0]}"
        return "give `head=(weight, bias)`, since features and logits do not tell what it is"

    def _rows(self, given: Any, field: str, shown: str) -> GivenRows:
        wanted = ("features", "logits") if field == "unknown" else ("features", "labels", "logits")
        if not isinstance(given, tuple | list) or len(given) != len(wanted):
            found = f"a tuple of {len(given)}" if isinstance(given, tuple | list) else f"a {type(given).__name__}"
            raise InputError(shown, "", f"is {found}, expected ({', '.join(wanted)})")
        parts = dict(zip(wanted, given, strict=True))
        names = None if field == "unknown" else self._class_names
        return given_rows(parts["features"], parts.get("labels"), parts["logits"], None, names, shown)
