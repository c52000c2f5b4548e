"""Fitted values described and made again: the same bits, the same types, and nothing that a file alone asks for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from ghost_ray.jobs.evaluate.fit_values import describe, rebuild
from ghost_ray.scorers._bank import Bank


@dataclass(frozen=True)
class Pair:
    first: Any
    second: Any


ARRAYS = st_numpy.arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.int32, np.bool_]),
    st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
LAID_OUT = st.one_of(ARRAYS, ARRAYS.map(np.asfortranarray))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.floats(width=32).map(np.float32),
    st.integers(-9, 9).map(np.int64),
)
KEYS = st.one_of(st.integers(), st.text(st.characters(exclude_categories=["Cs"])))
VALUES = st.recursive(
    st.one_of(SCALARS, LAID_OUT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    """Whether two values are of the same types and bits, and their arrays lie the same way."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        a, b = np.asarray(a), np.asarray(b)
        alike = (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        return alike and (a.flags.c_contiguous, a.flags.f_contiguous) == (b.flags.c_contiguous, b.flags.f_contiguous)
    if isinstance(a, float):
        return a.hex() == b.hex()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Pair):
        return same(a.first, b.first) and same(a.second, b.second)
    return a == b


@given(VALUES)
def test_what_is_described_is_made_again(value: Any) -> None:
    arrays: dict[str, np.ndarray] = {}
    description = json.loads(json.dumps(describe(value, (Pair,), arrays)))
    assert same(rebuild(description, (Pair,), arrays), value)


def test_a_bank_is_made_again() -> None:
    arrays: dict[str, np.ndarray] = {}
    bank = Bank(np.arange(6, dtype=np.float32).reshape(2, 3), "inner")
    bank.index()
    again = rebuild(describe(bank, (Bank,), arrays), (Bank,), arrays)
    assert again.metric == "inner"
    assert again.rows.tobytes() == bank.rows.tobytes()


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        Pair(1, 2),
        np.zeros((4, 4))[::2, ::2],
        np.zeros(3, np.complex128),
        np.array(["a"]),
        np.array([None]),
        [object()],
        np.ma.masked_array([1.0]),
    ],
)
def test_what_is_of_another_kind_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="cannot be kept"):
        describe(value, (Bank,), {})


@pytest.mark.parametrize(
    "description",
    [
        None,
        [],
        ["int"],
        ["int", True],
        ["int", 1, 2],
        ["float", "one"],
        ["array", "1", "C"],
        ["array", "0", "A"],
        ["dict", [["int", 1]]],
        ["object", "Pair", {"first": ["int", 1]}],
        ["object", "Pair", {"second": ["int", 1], "first": ["int", 1]}],
        ["object", "Bank", {"rows": ["array", "0", "C"], "metric": ["str", "l2"]}],
        ["object", "os.system", {"command": ["str", "true"]}],
        ["eval", "1"],
    ],
)
def test_what_is_no_description_is_refused(description: Any) -> None:
    with pytest.raises(ValueError, match=r"description|part|hexadecimal"):
        rebuild(description, (Pair,), {"0": np.zeros((1, 2))})
