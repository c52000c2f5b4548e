"""Open-set metrics: OSCR, AUROC, AUPR, FPR95, F@C95 and fairness between classes.

Knowns carry a label and are predicted right or wrong; unknowns belong to no class. A sample is accepted when its
score ≥ θ. Every metric comes from one descending sweep of θ over the distinct scores, in which ties are accepted
together and counts stay integers: the results are the same for any strictly increasing map of the scores, and for any
order of the rows. Scores may be −inf (tied at the bottom); NaN is refused.

Examples
--------
>>> import numpy as np
>>> from ghost_ray import metrics
>>> scores = metrics.OpenSetScores(
...     known=np.array([3.0, 2.0, 1.0]),
...     correct=np.array([True, True, False]),
...     label=np.array([0, 1, 1]),
...     unknown=np.array([1.5, 0.5]),
... )
>>> metrics.auroc(scores) == metrics.evaluate(scores)["auroc"] == 5 / 6
True
"""

from ghost_ray.metrics import standard  # noqa: F401 - registers its metrics
from ghost_ray.metrics.catalogue import (
    Measured,
    Metric,
    as_read,
    evaluate,
    in_demo,
    in_report,
    register,
    registered,
    tables,
    tested,
    unregister,
)
from ghost_ray.metrics.fairness import (
    FAIR_FPR,
    FPR_CURVE,
    ClassRates,
    class_rates,
    cv_curve,
    extreme_classes,
    f_at_c_by_class,
    fair_rates,
    fair_threshold,
    of_extreme_classes,
)
from ghost_ray.metrics.measures import (
    ROUNDING,
    SHARE,
    auoscr,
    aupr,
    aupr_unknown,
    auroc,
    f_at_c,
    fpr_at_tpr,
    openood_aupr_in,
    openood_aupr_out,
    openood_fpr_at_tpr,
    oscr_curve,
    roc_curve,
    threshold_at_fpr,
    threshold_at_known,
)
from ghost_ray.metrics.scores import Curve, OpenSetScores, Sweep, shared

__all__ = [
    "FAIR_FPR",
    "FPR_CURVE",
    "ROUNDING",
    "SHARE",
    "ClassRates",
    "Curve",
    "Measured",
    "Metric",
    "OpenSetScores",
    "Sweep",
    "as_read",
    "auoscr",
    "aupr",
    "aupr_unknown",
    "auroc",
    "class_rates",
    "cv_curve",
    "evaluate",
    "extreme_classes",
    "f_at_c",
    "f_at_c_by_class",
    "fair_rates",
    "fair_threshold",
    "fpr_at_tpr",
    "in_demo",
    "in_report",
    "of_extreme_classes",
    "openood_aupr_in",
    "openood_aupr_out",
    "openood_fpr_at_tpr",
    "oscr_curve",
    "register",
    "registered",
    "roc_curve",
    "shared",
    "tables",
    "tested",
    "threshold_at_fpr",
    "threshold_at_known",
    "unregister",
]
