"""The entries of the metrics: complete, in order, and refused where a name is taken."""

from __future__ import annotations

import numpy as np
import pytest

from ghost_ray import metrics
from ghost_ray.metrics import Metric, OpenSetScores

# The fields that other programs read, and their order in the file.
FIELDS = [
    *("auroc", "auoscr", "fpr95", "openood_fpr95", "f_at_c95", "ccr_mean", "ccr_std", "ccr_cv"),
    *("aupr", "aupr_unknown", "ccr_threshold", "auoscr_top_classes", "auoscr_bottom_classes"),
]


def scores() -> OpenSetScores:
    rng = np.random.default_rng(0)
    return OpenSetScores(rng.normal(1, 1, 90), rng.random(90) < 0.8, rng.integers(0, 9, 90), rng.normal(0, 1, 70))


def toy(field: str = "toy", value: float | None = 0.5, **more: object) -> Metric:
    return Metric(field, "Toy", "a number", lambda _: value, "high", **more)  # type: ignore[arg-type]


def test_metrics_json_has_its_fields_in_their_order():
    assert list(metrics.evaluate(scores())) == [*FIELDS, "knowns", "unknowns", "undefined"]


@pytest.mark.parametrize("metric", metrics.registered(), ids=lambda metric: metric.field)
def test_every_metric_explains_itself(metric):
    assert metric.title
    assert metric.meaning
    assert not metric.meaning.endswith(".")


def test_people_read_auoscr_first_and_then_table_by_table():
    assert [m.field for m in metrics.in_report()] == [
        *("auoscr", "auroc", "fpr95", "f_at_c95", "ccr_cv"),
        *("openood_fpr95", "ccr_mean"),
    ]
    assert metrics.in_demo() == metrics.in_report()[:5] == [m for entries in metrics.tables().values() for m in entries]
    assert [m.field for m in metrics.tested()] == ["auroc", "auoscr", "fpr95"]
    assert sorted(m.field for m in metrics.as_read()) == sorted(FIELDS)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_what_is_not_a_number_is_none_with_a_reason(value):
    result = metrics.evaluate(scores(), [toy(value=value), toy("said", value, undefined="because")])
    assert (result["toy"], result["said"]) == (None, None)
    assert result["undefined"] == {"toy": "has no value for these scores", "said": "because"}


def test_the_best_needs_a_direction_and_two_values():
    high, low, none = (Metric("x", "X", "x", lambda _: 0.0, better) for better in ("high", "low", None))
    values = [0.2, None, 0.7, 0.1]
    assert (high.best(values), low.best(values), none.best(values)) == (0.7, 0.1, None)
    assert high.best([None, 0.3]) is None


def test_a_taken_name_is_refused():
    with pytest.raises(ValueError, match="two metrics are stored as 'auroc': AUROC, Toy"):
        metrics.register(toy("auroc"))
    with pytest.raises(ValueError, match="'knowns' has another meaning"):
        metrics.register(toy("knowns"))
    assert [m.field for m in metrics.registered()] == FIELDS


def test_metrics_share_one_sweep_and_one_threshold(monkeypatch):
    counted = []
    sweep_of = metrics.Sweep.of
    monkeypatch.setattr(metrics.Sweep, "of", staticmethod(lambda s: counted.append(len(s.known)) or sweep_of(s)))
    s = scores()
    metrics.evaluate(s)
    assert counted[0] == 90
    assert len(counted) == 3, "all classes, the top and the bottom classes"
    assert metrics.fair_rates(s) is metrics.fair_rates(s)
