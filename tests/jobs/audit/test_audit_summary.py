"""What an audit makes of its tests: blocks of cells, quantiles of W, the verdict in words."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ghost_ray
from ghost_ray.jobs.audit.audit_summary import Distribution
from ghost_ray.jobs.audit.class_tests import RangeTests
from ghost_ray.jobs.audit.partial import Partial
from ghost_ray.jobs.audit.verdict import PAPER_RATES, percent, verdict


def test_blocks_fill_in_the_classes_of_which_there_is_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ghost_ray.jobs.audit.partial._BLOCK_CELLS", 12)
    partial = Partial(str(tmp_path / "work"), {"seed": 0})
    for index, classes in enumerate(([2, 3, 6], [7, 11], [12])):
        found = RangeTests.untested(0, len(classes), 3)
        partial.save(
            index,
            RangeTests(
                np.array(classes, np.int32), found.n + classes, found.available, found.W, found.p, found.degenerate
            ),
        )
    blocks = list(partial.blocks(3, classes=15, dimensions=3))
    assert np.concatenate([block.classes for block in blocks]).tolist() == list(range(15))
    expected = [k if k in (2, 3, 6, 7, 11, 12) else 0 for k in range(15)]
    assert np.concatenate([block.n for block in blocks]).tolist() == expected
    assert all(len(block.classes) <= 4 for block in blocks)


def test_quantiles_are_right_to_a_hundredth(rng: np.random.Generator) -> None:
    W = 1 - 10 ** rng.uniform(-5, -0.5, 20000)
    distribution = Distribution()
    for part in np.array_split(W, 7):
        distribution.add(part)
    for share in (0.01, 0.5, 0.99):
        assert 1 - distribution.quantile(share) == pytest.approx(1 - np.quantile(W, share), rel=0.02)
    assert sum(distribution.histogram()["counts"]) == 20000
    distribution.add(np.array([1.0, 0.0, 1 - 1e-9]))
    assert sum(distribution.histogram()["counts"]) == 20003


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (0.0, "fewer than Swin-T (0.56 %)"),
        (0.01, "between Swin-T (0.56 %) and MAE-H (2.79 %)"),
        (0.03, "between MAE-H (2.79 %) and ConvNeXtV2-H (3.13 %)"),
        (0.05, "between ConvNeXtV2-H (3.13 %) and DenseNet-121 (8.27 %) in the paper; GHOST did worst on the latter"),
        (0.5, "more than DenseNet-121 (8.27 %)"),
    ],
)
def test_the_verdict_places_a_rate_among_the_papers(rate: float, words: str) -> None:
    n, tests = np.full(10, 1300), np.full(10, 100)
    text = verdict(rate, 0.05, "all", n, tests, 0.97)
    assert text.startswith(f"{100 * rate:.2f} % of 1,000 tests reject normality")
    assert words in text
    assert "a median W of 0.970 at 1,300 samples per class" in text
    assert "decided by an evaluation on your own unknowns" in text
    assert "adopt" not in text
    assert "α = 0.05" not in text.split(":")[1]
    assert "the paper’s rates are those at α = 0.05" in verdict(rate, 0.01, "all", n, tests, 0.97)


@settings(max_examples=200)
@given(st.floats(0, 1) | st.sampled_from([*PAPER_RATES.values()]) | st.integers(0, 3000).map(lambda n: n / 30000))
def test_the_verdicts_comparison_agrees_with_the_rates_it_shows(rate: float) -> None:
    text = verdict(rate, 0.05, "all", np.full(30, 1300), np.full(30, 1000), 0.97)
    shown = [float(number) for number in re.findall(r"([\d.e-]+) %", text)]
    mine, *others = shown
    if "as many as" in text:
        assert others == [mine]
    elif "between" in text:
        assert others[0] <= mine <= others[1]
        assert others[0] < 100 * rate < others[1]
    else:
        assert ("more than" in text, "fewer than" in text) == (mine > others[0], mine < others[0])
    assert "adopt" not in text


@pytest.mark.parametrize(
    ("n", "classes", "dimensions", "family", "too_few"),
    [
        (12, 52, 1280, "all", True),  # the smallest p of Shapiro–Wilk at n = 12 is 1.2e-6, Holm asks for 7.5e-7
        (13, 52, 1280, "all", False),
        (12, 52, 1280, "class", False),
        (5, 10, 1000, "class", True),
        (3, 52, 1280, "all", False),  # where p is exact, and may be 0
    ],
)
def test_tests_that_could_not_reject_say_that_there_are_too_few_rows(
    n: int, classes: int, dimensions: int, family: str, too_few: bool
) -> None:
    text = verdict(0.0, 0.05, family, np.full(classes, n), np.full(classes, dimensions), 0.54)
    assert ("too few rows to tell how normal they are" in text) == too_few
    assert ("Swin-T" in text) != too_few, "nothing is compared that could not be seen"


def test_an_audit_of_six_rows_a_class_says_so() -> None:
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(4), 6)
    features = rng.pareto(0.5, (24, 1000))  # as far from normal as can be
    logits = np.eye(4)[label]
    found = ghost_ray.audit(features, label, logits)
    assert "too few rows" in found.verdict


def test_a_small_share_is_not_shown_as_none() -> None:
    assert percent(0.0) == "0.00 %"
    assert percent(0.0279) == "2.79 %"
    assert percent(7.9e-7) == "8e-05 %"
