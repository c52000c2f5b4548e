"""A seeded sample of a source."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ghost_ray.sources import make_items, select


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 5), st.integers(0, 3), st.randoms())
def test_selection(count: int, limit: int, per_class: int, seed: int, random) -> None:
    rows = [(f"{i}.png", "abc"[i % 3] if i % 7 else None) for i in range(count)]
    items = make_items([k for k, _ in rows], [k for k, _ in rows], [c for _, c in rows])
    random.shuffle(rows)
    shuffled = make_items([k for k, _ in rows], [k for k, _ in rows], [c for _, c in rows])
    chosen = select(items, limit, None, seed)["key"].to_pylist()
    assert chosen == [key for key in items["key"].to_pylist() if key in set(chosen)]
    assert len(chosen) == min(limit, count)
    assert set(chosen) == set(select(shuffled, limit, None, seed)["key"].to_pylist())
    assert set(chosen) <= set(select(items, limit + 3, None, seed)["key"].to_pylist())
    by_class = select(items, None, per_class, seed)
    labels = [label for _, label in rows]
    for label in set(labels):
        assert by_class["label"].to_pylist().count(label) == min(per_class, labels.count(label))
    assert set(by_class["key"].to_pylist()) == set(select(shuffled, None, per_class, seed)["key"].to_pylist())
    assert select(items, limit, per_class, seed).num_rows == min(limit, by_class.num_rows)


def test_seeds_choose_differently() -> None:
    keys = [f"{i}.png" for i in range(1000)]
    items = make_items(keys, keys, [None] * 1000)
    first, second = (set(select(items, 100, seed=seed)["key"].to_pylist()) for seed in (0, 1))
    assert len(first & second) < 30
