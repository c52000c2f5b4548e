"""``ghost_ray.audit``: is each class × dimension of some features normal?"""

from __future__ import annotations

import functools
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ghost_ray.arrays.ghost_model import ARRAYS
from ghost_ray.arrays.given import Array, given_rows
from ghost_ray.arrays.result_folder import ResultFolder, Scratch
from ghost_ray.cluster import threads
from ghost_ray.config import AuditConfig, build
from ghost_ray.jobs.audit.audit_job import AuditManifest, audit_store
from ghost_ray.jobs.audit.audit_summary import AuditSummary
from ghost_ray.jobs.audit.normality_table import NORMALITY
from ghost_ray.jobs.audit.verdict import PAPER_RATES, percent
from ghost_ray.progress import quietly

if TYPE_CHECKING:
    import pandas as pd


class Audit(ResultFolder):
    """An audit: `verdict`, counts, and W, p, p_holm, degenerate and n of every class and dimension.

    Every field of ``summary.json`` is an attribute too: ``found.tests``, ``found.rejected_fraction``,
    ``found.worst_classes``.
    """

    manifest_kind = AuditManifest
    made_by = "ghost-ray audit STORE --out DIR"

    def __init__(self, uri: str, scratch: Scratch | None = None) -> None:
        super().__init__(uri, scratch)
        self.summary: AuditSummary = self._json("summary.json")

    def __getattr__(self, name: str) -> Any:
        summary = vars(self).get("summary", {})
        if name in summary:
            return summary[name]
        raise AttributeError(f"an audit has no {name!r}; there are {', '.join(summary)}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.summary})

    @functools.cached_property
    def _cells(self) -> dict[str, np.ndarray]:
        table = self._table(NORMALITY)
        shape = (self.summary["classes"], self.summary["dimensions"])
        return {name: table[name].to_numpy().reshape(shape) for name in table.column_names}

    @property
    def W(self) -> np.ndarray:  # noqa: N802 - the statistic's own name
        """Shapiro–Wilk's statistic [K, D]; 1 where degenerate."""
        return self._cells["W"]

    @property
    def p(self) -> np.ndarray:
        """p of each test [K, D]; 1 where degenerate."""
        return self._cells["p"]

    @property
    def p_holm(self) -> np.ndarray:
        """p after Holm's correction [K, D]; 1 where degenerate."""
        return self._cells["p_holm"]

    @property
    def degenerate(self) -> np.ndarray:
        """Where nothing could be tested [K, D]: constant columns, and classes of fewer than three rows."""
        return self._cells["degenerate"]

    @property
    def n(self) -> np.ndarray:
        """Rows tested of each class [K]."""
        return self._cells["n"][:, 0]

    def to_pandas(self) -> pd.DataFrame:
        """One row per class and dimension, as in normality.parquet."""
        frame: pd.DataFrame = self._table(NORMALITY).to_pandas()
        return frame

    def __repr__(self) -> str:
        return f"Audit: {self.summary['verdict']}"

    def _repr_html_(self) -> str:
        rates = {"These features": self.summary["rejected_fraction"], **PAPER_RATES}
        rows = sorted(rates.items(), key=lambda entry: entry[1])
        lines = "".join(f"<tr><td>{escape(name)}</td><td>{percent(rate)}</td></tr>" for name, rate in rows)
        heads = "<tr><th>network</th><th>tests that reject normality</th></tr>"
        return f"<p>{escape(self.summary['verdict'])}</p><table>{heads}{lines}</table>"


def audit(
    features: Array,
    labels: Array,
    logits: Array | None = None,
    *,
    predictions: Array = None,
    alpha: float = 0.05,
    family: Literal["all", "class"] = "all",
    max_n: int = 5000,
    seed: int = 0,
    model: str = "imported",
    class_names: list[str] | None = None,
) -> Audit:
    """Test every class and dimension for normality, with Holm's correction, as ``ghost-ray audit`` does.

    Parameters
    ----------
    features, labels, logits, predictions, model, class_names
        As for `ghost_ray.Ghost.fit`.
    alpha : float, default 0.05
        Family-wise error rate.
    family : {"all", "class"}
        Holm's family: all tests together, or one family per class.
    max_n, seed : int, default 5000, 0
        A larger class is tested on a random sample of `max_n` rows.
    """
    scratch = Scratch()
    options = {"alpha": alpha, "family": family, "max_n": max_n, "seed": seed}
    config = build(AuditConfig, {**options, "store": ARRAYS, "out": scratch.out})
    rows = given_rows(features, labels, logits, predictions, class_names)
    with quietly(), threads():
        audit_store(config, rows.store(model, "features"))
    return Audit(scratch.out, scratch)
