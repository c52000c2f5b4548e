from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ghost_ray import metrics, significance
from ghost_ray.metrics import OpenSetScores


def methods(knowns: int = 3000, unknowns: int = 2500, seed: int = 0) -> dict[str, OpenSetScores]:
    """A reference, a method clearly worse, one that differs by noise alone, and the reference's double."""
    rng = np.random.default_rng(seed)
    correct, label = rng.random(knowns) < 0.8, rng.integers(0, 10, knowns)
    known, unknown = rng.normal(1.5, 1, knowns), rng.normal(0, 1, unknowns)

    def scores(noise: float) -> OpenSetScores:
        return OpenSetScores(
            known + noise * rng.normal(size=knowns), correct, label, unknown + noise * rng.normal(size=unknowns)
        )

    return {"worse": scores(1.5), "ghost": scores(0), "double": scores(0), "nearly": scores(0.01)}


def test_each_p_is_scipys_paired_test_times_the_number_of_rivals():
    scores = methods()
    picked = significance.draw(3000, 2500)
    for found in significance.compare(scores):
        function = next(metric.of for metric in metrics.tested() if metric.field == found["metric"])
        compared = (found["method"], "ghost")
        mine, theirs = ([function(scores[m].take(d.known, d.unknown)) for d in picked] for m in compared)
        assert found["mean"] == pytest.approx(np.mean(mine))
        assert found["difference"] == pytest.approx(np.mean(mine) - np.mean(theirs))
        if found["method"] == "double":
            assert (found["t"], found["p"], found["p_bonferroni"], found["note"]) == (None, 1, 1, "equal on every draw")
            continue
        expected = stats.ttest_rel(mine, theirs)
        assert found["t"] == pytest.approx(expected.statistic)
        assert found["p"] == pytest.approx(expected.pvalue)
        assert found["p_bonferroni"] == pytest.approx(min(1, 3 * expected.pvalue))


def test_a_clear_difference_is_found_and_noise_is_not():
    found = {(c["method"], c["metric"]): c for c in significance.compare(methods())}
    assert found["worse", "auroc"]["significant"]
    assert found["worse", "auroc"]["difference"] < 0
    assert found["worse", "fpr95"]["difference"] > 0
    assert not found["double", "auroc"]["significant"]


def test_draws_are_seeded_paired_and_without_replacement():
    first, again, other = (significance.draw(5000, 300, seed=s) for s in (4, 4, 5))
    for a, b, c in zip(first, again, other, strict=True):
        assert np.array_equal(a.known, b.known)
        assert not np.array_equal(a.known, c.known)
        assert len(np.unique(a.known)) == 1000
        assert len(np.unique(a.unknown)) == 150
    assert not np.array_equal(first[0].known, first[1].known)
    assert not np.array_equal(first[0].unknown, first[1].unknown)


def test_draws_are_uniform():
    counts = np.zeros(40)
    for d in significance.draw(40, 1, draws=4000, size=10):
        counts[d.known] += 1
    assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.parametrize(("available", "drawn"), [(50_000, 1000), (1001, 1000), (1000, 500), (7, 3), (2, 1), (1, 1)])
def test_draws_are_of_a_thousand_or_of_half_a_smaller_set(available, drawn):
    assert significance.rows_drawn(available) == drawn
    for d in significance.draw(available, 5000):
        assert (len(d.known), len(d.unknown)) == (drawn, 1000)


def test_a_clear_difference_is_found_in_small_sets_too_and_noise_is_not():
    found = {(c["method"], c["metric"]): c for c in significance.compare(methods(knowns=800, unknowns=600))}
    assert found["worse", "auroc"]["significant"]
    assert not found["double", "auroc"]["significant"]
    assert all(0 <= c["p"] <= 1 for c in found.values())


@pytest.mark.parametrize(("knowns", "unknowns", "size"), [(120, 120, 1000), (120, 2000, 100), (3000, 3000, 40)])
def test_equal_methods_are_told_apart_no_more_often_than_alpha(knowns, unknowns, size):
    """Two methods of one quality with noise of their own, on new sets each time: 5 % of 400 is 20 ± 4.4."""
    rng = np.random.default_rng(0)
    label, correct = np.zeros(knowns, int), np.ones(knowns, bool)
    called = 0
    for _ in range(400):
        values = [
            np.array(
                [metrics.auroc(s.take(d.known, d.unknown)) for d in significance.draw(knowns, unknowns, size=size)]
            )
            for s in (
                OpenSetScores(rng.normal(1, 1, knowns), correct, label, rng.normal(size=unknowns)) for _ in range(2)
            )
        ]
        share = max(significance.share_drawn(n, size) for n in (knowns, unknowns))
        called += significance.paired_test(*values, share)[1] < 0.05
    assert called <= 33


def test_a_share_of_zero_is_the_plain_test_and_more_in_common_proves_less():
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.3, 1, 10), rng.normal(size=10)
    expected = stats.ttest_rel(a, b)
    assert significance.paired_test(a, b) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue), "")
    t, p, _ = significance.paired_test(a, b, 0.5)
    assert t == pytest.approx(expected.statistic / np.sqrt(11))
    assert p > expected.pvalue


def test_a_caution_says_how_the_draws_differ_from_the_papers():
    assert significance.caution("knowns", 2000) is None
    assert significance.caution("knowns", 900).startswith("each draw takes half of the 900 knowns; the tests account")
    assert "takes 1,000 of the 1,200 unknowns of x;" in significance.caution("unknowns of x", 1200)


def test_a_set_of_one_row_is_not_called_significant():
    for knowns, unknowns in ((1, 1), (1, 3000), (3000, 1)):
        found = significance.compare(methods(knowns=knowns, unknowns=unknowns))
        assert all(c["p"] == c["p_bonferroni"] == 1 and not c["significant"] for c in found)
        assert "no draws can be made from a single row" in found[0]["note"]


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=12).flatmap(
        lambda a: st.tuples(st.just(a), st.lists(st.floats(0, 1), min_size=len(a), max_size=len(a)))
    )
)
def test_p_is_never_nan(pair):
    t, p, note = significance.paired_test(*pair)
    assert 0 <= p <= 1
    assert (t is None) == bool(note)


def test_a_constant_difference_is_named():
    assert significance.paired_test([0.5, 0.6, 0.7], [0.25, 0.35, 0.45]) == (
        None,
        0.0,
        "the same difference on every draw",
    )


def test_the_result_is_json():
    shown = json.dumps(significance.compare(methods(50, 1200)), allow_nan=False)
    assert shown == json.dumps(significance.compare(methods(50, 1200)))


def test_what_cannot_be_compared_is_refused():
    scores = methods()
    with pytest.raises(ValueError, match="'ghost' is not among worse"):
        significance.compare({"worse": scores["worse"]})
    with pytest.raises(ValueError, match="ghost has"):
        significance.compare({"ghost": scores["ghost"], "other": methods(100)["ghost"]})
    with pytest.raises(ValueError, match="2 draws"):
        significance.draw(10, 10, draws=1)


def test_a_metric_that_a_draw_does_not_define_shows_no_difference():
    last = metrics.Metric(
        "odd", "Odd", "defined on some draws only", lambda s: s.known[0] if s.correct[0] else None, "high"
    )
    found = significance.compare(methods(), on=[last])
    assert {(c["mean"], c["difference"], c["t"], c["p"], c["note"]) for c in found} == {
        (None, None, None, 1.0, "not defined on every draw")
    }
    assert not any(c["significant"] for c in found)


def test_variants_do_not_count_among_the_rivals():
    plain = {c["method"]: c for c in significance.compare(methods()) if c["metric"] == "auroc"}
    found = {c["method"]: c for c in significance.compare(methods(), variants=["double"]) if c["metric"] == "auroc"}
    assert found["nearly"]["p"] == plain["nearly"]["p"]
    assert plain["nearly"]["p_bonferroni"] == pytest.approx(min(1, 3 * plain["nearly"]["p"]))
    assert found["nearly"]["p_bonferroni"] == pytest.approx(min(1, 2 * plain["nearly"]["p"]))
    assert found["double"]["p_bonferroni"] == found["double"]["p"]


def test_values_measured_at_another_time_pair_with_these():
    scores = methods()
    together = significance.measure_draws(scores)
    alone = {name: significance.measure_draws({name: one})[name] for name, one in scores.items()}
    for name in scores:
        for field, values in together[name].items():
            assert values.tolist() == alone[name][field].tolist()
            assert significance.mean_of(values) == values.mean()
            assert significance.std_of(values) == values.std(ddof=1)
    assert significance.compare_drawn(alone) == significance.compare(scores)
    assert significance.std_of(np.array([0.5, np.nan])) is None
