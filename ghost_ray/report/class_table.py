"""The per-class table of an evaluation, within a bounded size."""

from __future__ import annotations

import numpy as np

from ghost_ray.report.discover import Result
from ghost_ray.report.document import ClassTable, plain
from ghost_ray.scorers import title_of

_COLUMNS = ("method", "unknown", "class", "name", "n", "accuracy", "ccr", "f_at_c95")
_MEASURES = ("ccr", "f_at_c95")
# Values the page carries for this table, about seven bytes each.
_MOST_VALUES = 250_000


def class_table(result: Result, methods: list[str], identity: str, room: float) -> ClassTable | None:
    """Every class under every method and unknown set; None if per_class.parquet is missing.

    Parameters
    ----------
    methods : list of str
        In the order in which to show them: where there is no room for all, the last are left out.
    room : float
        The share of the page's room for such tables that this one may take.
    """
    table = result.table("per_class.parquet", _COLUMNS)
    if table is None or len(table["class"]) == 0:
        return None
    classes, first = np.unique(table["class"], return_index=True)
    present = set(table["method"])
    shown = [method for method in methods if method in present] or sorted(present)
    sets = list(dict.fromkeys(table["unknown"]))
    shown, sets, left_out = _fit(len(classes), shown, sets, int(room * _MOST_VALUES))
    return ClassTable(
        id=f"{identity}-classes",
        title="Every class",
        caption="CCR: share of the class’s knowns classified correctly and accepted, at the one threshold that accepts "
        f"at most 10 % of the unknowns. Click a heading to sort, type to filter.{left_out}",
        names=[str(table["name"][i]) for i in first],
        count=table["n"][first].tolist(),
        accuracy=table["accuracy"][first].tolist(),
        measures=_measures(table, np.searchsorted(classes, table["class"]), len(classes), shown, sets),
        methods=[(method, title_of(method)) for method in shown],
    )


def _fit(classes: int, methods: list[str], sets: list[str], values: int) -> tuple[list[str], list[str], str]:
    """The methods and sets that fit, and a sentence about the others."""
    a_pair = classes * len(_MEASURES)
    kept_sets = sets[: max(1, values // (a_pair * min(2, len(methods))))]
    kept = methods[: max(1, min(2, len(methods)), values // (a_pair * len(kept_sets)))]
    absent = [title_of(method) for method in methods[len(kept) :]] + sets[len(kept_sets) :]
    sentence = f" Left out to save space, all in per_class.parquet: {', '.join(absent)}." if absent else ""
    return kept, kept_sets, sentence


def _measures(
    table: dict[str, np.ndarray], position: np.ndarray, classes: int, methods: list[str], sets: list[str]
) -> dict[str, dict[str, dict[str, list[float | None]]]]:
    found: dict[str, dict[str, dict[str, list[float | None]]]] = {}
    for unknown in sets:
        found[unknown] = {}
        for method in methods:
            rows = np.flatnonzero((table["method"] == method) & (table["unknown"] == unknown))
            columns = {}
            for measure in _MEASURES:
                values = np.full(classes, np.nan)
                values[position[rows]] = np.round(table[measure][rows].astype(float), 5)
                columns[measure] = plain(values)
            found[unknown][method] = columns
    return found
