"""Histograms of s reach to the farthest sample, and tell rare ones from common ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ghost_ray.jobs.evaluate.illustrating import z_histograms

DISTANCES = st.lists(st.floats(0, 1e12) | st.floats(50, 70) | st.just(1e308) | st.just(float("nan")), max_size=60)


def histograms(**sets: Any) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    table = z_histograms({name: SimpleNamespace(z_sum=np.array(values, float)) for name, values in sets.items()})
    rows = table.to_pandas()
    return {
        name: tuple(rows[rows["set"] == name][column].to_numpy() for column in ("left", "right", "count"))
        for name in sets
    }


@settings(max_examples=200)
@given(DISTANCES, DISTANCES)
def test_every_distance_is_in_one_bin(known: list[float], unknown: list[float]) -> None:
    found = histograms(known=known, far=unknown)
    for name, values in (("known", known), ("far", unknown)):
        left, right, count = found[name]
        finite = np.array(values)[np.isfinite(values)]
        assert count.sum() == len(finite)
        assert (left < right).all()
        np.testing.assert_array_equal(left[1:], right[:-1])
        if len(finite):
            assert left[0] <= finite.min() <= finite.max() <= right[-1]
        assert len(count) <= 1000
    np.testing.assert_array_equal(found["known"][0], found["far"][0])


def test_rare_extremes_stand_alone_where_they_are(rng: np.random.Generator) -> None:
    bulk = rng.normal(1000, 90, 20_000)
    left, right, count = histograms(known=np.r_[bulk, 30_000, 160_000], near=rng.normal(1900, 300, 5000).clip(800))[
        "known"
    ]
    for far in (30_000, 160_000):
        (at,) = np.flatnonzero((left <= far) & (far <= right) & (count > 0))
        assert count[at] == 1
        assert right[at] / left[at] < 1.1, "its bin says where it is"
    assert np.count_nonzero(count) > 20, "and the others are not squeezed into a few"
