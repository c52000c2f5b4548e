from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from ghost_ray import metrics
from ghost_ray.metrics import OpenSetScores


def case(seed: int, knowns: int, unknowns: int, classes: int, levels: int, lowest: bool = False) -> OpenSetScores:
    """Random scores on a few levels, so that there are many ties; optionally with −inf among them."""
    rng = np.random.default_rng(seed)
    values = np.sort(rng.normal(size=levels))
    if lowest:
        values[0] = -np.inf
    return OpenSetScores(
        rng.choice(values, knowns),
        rng.random(knowns) < 0.7,
        rng.integers(0, classes, knowns),
        rng.choice(values, unknowns),
    )


cases = st.builds(
    case,
    seed=st.integers(0, 2**32 - 1),
    knowns=st.integers(1, 40),
    unknowns=st.integers(1, 40),
    classes=st.integers(1, 5),
    levels=st.integers(1, 12),
    lowest=st.booleans(),
)


def thresholds(s: OpenSetScores) -> list[float]:
    """+inf and every distinct score, from the top."""
    return [math.inf, *sorted(set(s.known.tolist()) | set(s.unknown.tolist()), reverse=True)]


def counted(s: OpenSetScores) -> list[tuple[float, float, float]]:
    """(FPR, CCR, accepted knowns) at every threshold, counted sample by sample."""
    rows = []
    for theta in thresholds(s):
        fpr = sum(u >= theta for u in s.unknown) / len(s.unknown)
        ccr = sum(k >= theta and c for k, c in zip(s.known, s.correct, strict=True)) / len(s.known)
        rows.append((fpr, ccr, sum(k >= theta for k in s.known)))
    return rows


@given(cases)
def test_oscr_equals_a_count_over_all_thresholds(s):
    rows = counted(s)
    curve = metrics.oscr_curve(s)
    assert np.allclose(curve.fpr, [r[0] for r in rows])
    assert np.allclose(curve.value, [r[1] for r in rows])
    assert (curve.fpr[0], curve.value[0]) == (0, 0)
    assert (curve.fpr[-1], curve.value[-1]) == (1, s.accuracy)
    area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(rows))
    assert metrics.auoscr(s) == pytest.approx(area)


@given(cases)
def test_areas_equal_scikit_learn(s):
    is_known = np.r_[np.ones(len(s.known)), np.zeros(len(s.unknown))]
    values = np.r_[s.known, s.unknown]
    finite = np.where(np.isneginf(values), -1e6, values)
    assert metrics.auroc(s) == pytest.approx(roc_auc_score(is_known, finite))
    assert metrics.aupr(s) == pytest.approx(average_precision_score(is_known, finite))
    assert metrics.aupr_unknown(s) == pytest.approx(average_precision_score(1 - is_known, -finite))


@given(cases)
def test_rates_at_95_percent_equal_a_count(s):
    rows = counted(s)
    assert metrics.fpr_at_tpr(s) == min(r[0] for r in rows if r[2] * 20 >= 19 * len(s.known))
    rejected = [(sum(u < t for u in s.unknown), sum(k < t for k in s.known) / len(s.known)) for t in thresholds(s)]
    assert metrics.openood_fpr_at_tpr(s) == min(r[1] for r in rejected if r[0] * 20 >= 19 * len(s.unknown))
    if s.correct.any():
        assert metrics.f_at_c(s) == min(r[0] for r in rows if r[1] >= 0.95 * s.accuracy - 1e-12)
    else:
        assert metrics.f_at_c(s) is None


@given(cases)
def test_f_at_c_of_a_class_is_that_of_its_knowns_alone(s):
    by_class = metrics.f_at_c_by_class(s)
    assert by_class == {k: metrics.f_at_c(s.of_classes([k])) for k in np.unique(s.label).tolist()}


@given(cases, st.floats(0, 1))
def test_threshold_at_fpr_is_the_lowest_allowed(s, tau):
    def fpr(theta: float) -> float:
        return sum(u >= theta for u in s.unknown) / len(s.unknown)

    assert metrics.threshold_at_fpr(s, tau) == min(t for t in thresholds(s) if fpr(t) <= tau + 1e-9)


@given(cases)
def test_class_rates_equal_a_count(s):
    theta = metrics.threshold_at_fpr(s, 0.3)
    rates = metrics.class_rates(s, theta)
    expected = [np.mean(s.correct[s.label == k] & (s.known[s.label == k] >= theta)) for k in rates.classes]
    assert np.allclose(rates.ccr, expected)
    if len(expected) > 1:
        assert rates.std == pytest.approx(np.std(expected, ddof=1))
        assert rates.cv == (pytest.approx(rates.std / np.mean(expected)) if np.mean(expected) > 0 else None)


@given(cases)
def test_no_metric_changes_under_a_strictly_increasing_map(s):
    ranks = {value: float(i) ** 3 for i, value in enumerate(sorted({*s.known.tolist(), *s.unknown.tolist()}))}
    mapped = OpenSetScores(
        np.array([ranks[v] for v in s.known.tolist()]),
        s.correct,
        s.label,
        np.array([ranks[v] for v in s.unknown.tolist()]),
    )
    before, after = metrics.evaluate(s), metrics.evaluate(mapped)
    for changing in ("ccr_threshold", "undefined"):
        before.pop(changing), after.pop(changing)
    assert before == after
    assert metrics.cv_curve(s) == metrics.cv_curve(mapped)


@given(cases, st.randoms(use_true_random=False))
def test_no_metric_depends_on_the_order_of_rows(s, random):
    known, unknown = np.arange(len(s.known)), np.arange(len(s.unknown))
    random.shuffle(known), random.shuffle(unknown)
    assert metrics.evaluate(s) == metrics.evaluate(s.take(known, unknown))


@given(cases)
@settings(max_examples=50)
def test_evaluate_is_json_without_nan_and_names_what_is_undefined(s):
    result = metrics.evaluate(s)
    json.dumps(result, allow_nan=False)
    assert {k for k, v in result.items() if v is None} == set(result["undefined"])
    assert all(result["undefined"].values())


def test_no_unknown_accepted_is_the_perfect_curve():
    s = OpenSetScores(np.array([3.0, 2.0]), np.array([True, True]), np.array([0, 1]), np.array([1.0, -np.inf]))
    assert metrics.auoscr(s) == metrics.auroc(s) == metrics.aupr(s) == 1
    assert metrics.fpr_at_tpr(s) == metrics.f_at_c(s) == metrics.openood_fpr_at_tpr(s) == 0


def test_all_scores_equal_is_chance():
    s = OpenSetScores(np.zeros(4), np.array([True, True, True, False]), np.array([0, 0, 1, 1]), np.zeros(7))
    assert metrics.auroc(s) == 0.5
    assert metrics.auoscr(s) == pytest.approx(0.75 / 2)
    assert metrics.threshold_at_fpr(s, 0.1) == math.inf
    result = metrics.evaluate(s)
    assert result["ccr_cv"] is None
    assert "accepted" in result["undefined"]["ccr_cv"]


def test_95_percent_is_not_moved_by_rounding():
    """0.95 · 60 is 56.99… or 57.00…1 in binary; 57 of 60 knowns are 95 %."""
    for n in range(20, 2001, 20):
        s = OpenSetScores(
            np.arange(n, dtype=float), np.ones(n, bool), np.zeros(n, int), np.arange(n, dtype=float) + 0.5
        )
        kept = n * 19 // 20
        assert metrics.fpr_at_tpr(s) == kept / n
        assert metrics.threshold_at_known(s.known, 0.95) == n - kept


def test_extreme_classes_are_a_tenth_by_closed_set_accuracy():
    label = np.repeat(np.arange(20), 20)
    correct = np.tile(np.arange(20), 20) < label
    rng = np.random.default_rng(0)
    s = OpenSetScores(rng.normal(size=400), correct, label, rng.normal(size=50))
    top, bottom = metrics.extreme_classes(s)
    assert top.tolist() == [18, 19]
    assert bottom.tolist() == [0, 1]
    assert metrics.oscr_curve(s.of_classes(bottom)).value[-1] == np.mean(correct[label < 2])


@pytest.mark.parametrize("points", [2, 50, 500])
def test_thinning_keeps_the_ends_and_the_area(points):
    rng = np.random.default_rng(1)
    s = OpenSetScores(
        rng.normal(1.5, 1, 20_000), rng.random(20_000) < 0.8, rng.integers(0, 9, 20_000), rng.normal(size=20_000)
    )
    whole = metrics.oscr_curve(s)
    thin = whole.thin(points)
    assert len(thin.fpr) <= points
    assert (thin.fpr[0], thin.value[0], thin.fpr[-1], thin.value[-1]) == (0, 0, 1, s.accuracy)
    assert abs(np.trapezoid(thin.value, thin.fpr) - metrics.auoscr(s)) < max(2 / points**2, 1e-5)


@pytest.mark.parametrize(
    ("known", "unknown", "message"),
    [
        ([np.nan, 1.0], [0.0], "1 of 2 known scores are NaN"),
        ([1.0, 1.0], [np.nan], "1 of 1 unknown scores are NaN"),
        ([1.0, 1.0], [], "no unknown samples"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(known, unknown, message):
    with pytest.raises(ValueError, match=message):
        OpenSetScores(np.array(known), np.ones(2, bool), np.zeros(2, int), np.array(unknown))
    with pytest.raises(ValueError, match="no known samples"):
        OpenSetScores(np.array([]), np.ones(0, bool), np.zeros(0, int), np.array([1.0]))
