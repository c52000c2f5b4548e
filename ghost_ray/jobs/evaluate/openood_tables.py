"""Results in the columns of OpenOOD: a file per method, a line per unknown set and per group, in percent."""

from __future__ import annotations

import csv
import io

import numpy as np

from ghost_ray import metrics
from ghost_ray.jobs.evaluate.measuring import open_set
from ghost_ray.jobs.evaluate.scoring import SetScores

# As OpenOOD names and orders them; unknowns are the positives of FPR@95.
COLUMNS = ("FPR@95", "AUROC", "AUPR_IN", "AUPR_OUT", "ACC")


def openood_csv(sets: dict[str, SetScores], method: str, unknowns: list[str], groups: dict[str, list[str]]) -> str:
    """One method as OpenOOD's ``ood.csv``: dataset, FPR@95, AUROC, AUPR_IN, AUPR_OUT, ACC."""
    measured = {}
    for unknown in unknowns:
        scores = open_set(sets, method, unknown)
        measured[unknown] = (
            metrics.openood_fpr_at_tpr(scores),
            metrics.auroc(scores),
            metrics.openood_aupr_in(scores),
            metrics.openood_aupr_out(scores),
            scores.accuracy,
        )
    for group, members in groups.items():
        measured[group] = tuple(np.mean([measured[member] for member in members], axis=0))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["dataset", *COLUMNS])
    for name, values in measured.items():
        writer.writerow([name, *(f"{100 * value:.2f}" for value in values)])
    return text.getvalue()
