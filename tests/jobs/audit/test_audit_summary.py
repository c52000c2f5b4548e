"""What an audit makes of its tests: blocks of cells, quantiles of W, the verdict in words."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
        (0.05, "between ConvNeXtV2-H (3.13 %) and DenseNet-121 (8.27 %), on which GHOST did worst"),
        (0.5, "more than DenseNet-121 (8.27 %)"),
    ],
)
def test_the_verdict_places_a_rate_among_the_papers(rate: float, words: str) -> None:
    text = verdict(rate, 1000, 0.05, "all", 1300.0)
    assert text.startswith(f"{100 * rate:.2f} % of 1,000 tests reject normality")
    assert words in text
    assert "large deviations" not in text
    few = verdict(rate, 1000, 0.05, "class", 40.0)
    assert ("with 40 samples per class only large deviations can be detected" in few) == (rate < 0.05)
    assert "α = 0.05" not in text.split(":")[1]
    assert "the paper’s rates are those at α = 0.05" in verdict(rate, 1000, 0.01, "all", 1300.0)


@settings(max_examples=200)
@given(st.floats(0, 1) | st.sampled_from([*PAPER_RATES.values()]) | st.integers(0, 3000).map(lambda n: n / 30000))
def test_the_verdicts_comparison_agrees_with_the_rates_it_shows(rate: float) -> None:
    text = verdict(rate, 30000, 0.05, "all", 1300.0)
    shown = [float(number) for number in re.findall(r"([\d.e-]+) %", text)]
    mine, *others = shown
    if "as many as" in text:
        assert others == [mine]
    elif "between" in text:
        assert others[0] <= mine <= others[1]
        assert others[0] < 100 * rate < others[1]
    else:
        assert ("more than" in text, "fewer than" in text) == (mine > others[0], mine < others[0])
    assert ("may be adopted" in text) == (100 * rate < 100 * 0.0313 + 0.005)


def test_a_small_share_is_not_shown_as_none() -> None:
    assert percent(0.0) == "0.00 %"
    assert percent(0.0279) == "2.79 %"
    assert percent(7.9e-7) == "8e-05 %"
