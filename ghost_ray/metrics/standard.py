"""The metrics of the paper and their companions, in the order of metrics.json. A new one is one more entry."""

from __future__ import annotations

from ghost_ray.metrics.catalogue import Metric, register
from ghost_ray.metrics.fairness import fair_rates, fair_threshold, of_extreme_classes
from ghost_ray.metrics.measures import (
    auoscr,
    aupr,
    aupr_unknown,
    auroc,
    f_at_c,
    fpr_at_tpr,
    openood_fpr_at_tpr,
)

_MAIN = "Open-set recognition"

register(
    Metric(
        "auroc",
        "AUROC",
        "area under the ROC curve, the chance that a known scores higher than an unknown",
        auroc,
        better="high",
        table=_MAIN,
        in_demo=True,
        tested=True,
    )
)
register(
    Metric(
        "auoscr",
        "AUOSCR",
        "area under CCR over FPR, at most the closed-set accuracy",
        auoscr,
        better="high",
        table=_MAIN,
        leads=True,
        in_demo=True,
        tested=True,
    )
)
register(
    Metric(
        "fpr95",
        "FPR95",
        "share of the unknowns accepted at the threshold that accepts 95 % of the knowns",
        fpr_at_tpr,
        better="low",
        table=_MAIN,
        in_demo=True,
        tested=True,
    )
)
register(
    Metric(
        "openood_fpr95",
        "OpenOOD FPR95",
        "share of the knowns rejected at the threshold that rejects 95 % of the unknowns; not comparable with FPR95",
        openood_fpr_at_tpr,
        better="low",
        in_report=True,
    )
)
register(
    Metric(
        "f_at_c95",
        "F@C95",
        "lowest share of the unknowns accepted while CCR is at least 95 % of the closed-set accuracy",
        f_at_c,
        better="low",
        undefined="no known is classified correctly",
        table="FPR at 95 % of closed-set accuracy",
        in_demo=True,
    )
)
register(
    Metric(
        "ccr_mean",
        "mean CCR",
        "mean over classes of the CCR at FPR 10 %",
        lambda scores: fair_rates(scores).mean,
        better="high",
        in_report=True,
    )
)
register(
    Metric(
        "ccr_std",
        "σ of CCR",
        "standard deviation over classes of the CCR at FPR 10 %",
        lambda scores: fair_rates(scores).std,
        better="low",
        undefined="knowns are of one class only",
    )
)
register(
    Metric(
        "ccr_cv",
        "V",
        "standard deviation over mean of the classes’ CCR at FPR 10 %; lower is fairer",
        lambda scores: fair_rates(scores).cv,
        better="low",
        undefined=lambda scores: fair_rates(scores).undefined,
        table="Unfairness between classes at FPR 10 %",
        in_demo=True,
    )
)
register(Metric("aupr", "AUPR", "average precision with knowns as positives", aupr, better="high"))
register(
    Metric(
        "aupr_unknown", "AUPR of unknowns", "average precision with unknowns as positives", aupr_unknown, better="high"
    )
)
register(
    Metric(
        "ccr_threshold",
        "θ at FPR 10 %",
        "the threshold at which classes are compared",
        fair_threshold,
        better=None,
        undefined=lambda scores: f"{'every' if fair_threshold(scores) < 0 else 'no'} sample is accepted",
        averaged=False,
    )
)


def _register_extreme(end: str, accuracy: str, place: int) -> None:
    register(
        Metric(
            f"auoscr_{end}_classes",
            f"AUOSCR, {end} 10 %",
            f"AUOSCR of the tenth of the classes with the {accuracy} closed-set accuracy",
            lambda scores: auoscr(of_extreme_classes(scores)[place]),
            better="high",
            averaged=False,
        )
    )


_register_extreme("top", "highest", 0)
_register_extreme("bottom", "lowest", 1)
