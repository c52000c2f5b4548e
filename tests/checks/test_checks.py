"""Mistakes in made-up data are noticed in one line each, and sound data in none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from support.stores import Toy

from ghost_ray.checks import (
    LabelCounts,
    LookedAt,
    TwinSearch,
    lacking_classes,
    of_distances,
    of_head,
    of_labels,
    of_logits,
    of_negative_top_logits,
    of_set,
    of_shared_rows,
    sample_places,
    sample_size,
)
from ghost_ray.gaussians import Accumulator, Gaussians
from ghost_ray.rows import Head, Rows


def look(features: np.ndarray, logits: np.ndarray, label: np.ndarray, names: list[str] | None = None) -> LookedAt:
    pred = logits.argmax(1)
    sample = Rows(label, pred, features.astype(np.float32), logits.astype(np.float32))
    return LookedAt(LabelCounts.of(label, pred), sample, logits.shape[1], names)


def toy_set(seed: int, classes: int, dimensions: int, rows: int) -> tuple[Toy, np.ndarray, np.ndarray, np.ndarray]:
    """A network whose classes are apart, and features, logits (all positive at the top) and labels under it."""
    rng = np.random.default_rng(seed)
    toy = Toy.make(rng, classes, dimensions, spread=2.0)
    features, label = toy.known(rng, rows)
    logits = toy.logits(features)
    return toy, features, logits - logits.min() + 1, label


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 24), st.sampled_from([2, 8, 32]), st.sampled_from([1, 5, 40, 200, 3000]))
def test_sound_data_are_not_spoken_of(seed: int, classes: int, dimensions: int, rows: int) -> None:
    _, features, logits, label = toy_set(seed, classes, dimensions, rows)
    assert of_set(look(features, logits, label)) == []
    unknown = np.full(rows, -1)
    assert of_set(look(features, logits, unknown)) == []


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(3, 24), st.integers(-2, 2).filter(bool))
def test_shifted_labels_are_told_with_the_shift_that_fits(seed: int, classes: int, shift: int) -> None:
    _, features, logits, label = toy_set(seed, classes, 16, 300)
    (note,) = of_set(look(features, logits, (label + shift) % classes))
    wrong, right = np.mean((label + shift) % classes == logits.argmax(1)), np.mean(label == logits.argmax(1))
    back = -shift % classes
    back = back if back <= classes // 2 else back - classes
    words = f"{abs(back)} {'added to' if back > 0 else 'subtracted from'} each"
    assert f"{100 * wrong:.1f} %" in note
    assert f"{100 * right:.1f} %" in note
    assert words in note
    assert f"modulo {classes}" in note


def test_two_classes_can_only_be_swapped() -> None:
    _, features, logits, label = toy_set(3, 2, 16, 300)
    (note,) = of_set(look(features, logits, 1 - label))
    assert "with the two classes swapped" in note


@pytest.mark.parametrize("names", [None, [f"class {k}" for k in range(12)]])
def test_classes_sorted_as_text_are_told_from_classes_in_order(names: list[str] | None) -> None:
    _, _, logits, label = toy_set(5, 12, 16, 600)
    as_text = sorted(range(12), key=str)  # 0, 1, 10, 11, 2, …
    place = np.argsort(as_text)
    sorted_names = None if names is None else [names[k] for k in as_text]
    (note,) = of_labels(LabelCounts.of(place[label], logits.argmax(1)), 12, sorted_names)
    assert "in the order of their numbers, 2 before 10: they seem to be sorted as text" in note
    (note,) = of_labels(LabelCounts.of(label, place[logits.argmax(1)]), 12, names)
    assert "in the order of their names as text, 10 before 2" in note
    assert of_labels(LabelCounts.of(label, logits.argmax(1)), 12, names) == []
    assert of_labels(LabelCounts.of(place[label], place[logits.argmax(1)]), 12, sorted_names) == [], (
        "as torchvision does, and trained so"
    )


def test_classes_in_any_other_order_are_matched_one_by_one(rng: np.random.Generator) -> None:
    _, features, logits, label = toy_set(7, 8, 16, 600)
    (note,) = of_set(look(features, logits, np.array([3, 5, 0, 7, 1, 6, 2, 4])[label]))
    assert "if each class were the one it is mostly taken for" in note


@pytest.mark.parametrize(("seed", "classes"), [*enumerate([2, 3, 5, 8, 12, 17, 24])])
def test_shuffled_rows_are_told_by_what_was_shuffled(seed: int, classes: int) -> None:
    _, features, logits, label = toy_set(seed, classes, 16, 600)
    order = np.random.default_rng(seed).permutation(len(label))
    (labels_moved,) = of_set(look(features, logits, label[order]))
    assert "labels and logits do not seem to belong together" in labels_moved
    (features_moved,) = of_set(look(features[order], logits, label))
    assert "features and logits do not seem to be in the same order" in features_moved
    (logits_moved,) = of_set(look(features, logits[order], label))
    assert "the logits seem to be in another order than features and labels" in logits_moved


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 5)), max_size=80))
def test_the_shares_in_a_note_on_labels_are_what_they_are_called(rows: list[tuple[int, int]]) -> None:
    label, pred = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    for note in of_labels(LabelCounts.of(label, pred), 6):
        known = label >= 0
        assert f"in {100 * np.mean(label[known] == pred[known]):.1f} % of the rows" in note
        if "chance" in note:
            share, chance = np.mean(label[known] == pred[known]), note.split("(")[1].split(" %")[0]
            assert ("not more often" in note) == (share <= float(chance) / 100 + 5e-4)


def test_a_network_that_always_answers_the_same_is_no_better_than_chance() -> None:
    label = np.repeat([0, 1, 2], [200, 20, 20])
    (note,) = of_labels(LabelCounts.of(label, np.full(240, 1)), 3)
    assert "not more often than by chance (8.3 %)" in note
    assert of_labels(LabelCounts.of(np.full(240, 2), np.full(240, 2)), 3) == [], "of one class nothing can be said"


def test_probabilities_are_told_from_logits(rng: np.random.Generator) -> None:
    logits = rng.normal(0, 4, (300, 10))
    assert of_logits(logits) == []
    assert of_logits(np.abs(logits)) == []
    assert "look like probabilities" in of_logits(softmax(logits, 1).astype(np.float16))[0]
    assert "look like logarithms of probabilities" in of_logits(log_softmax(logits, 1))[0]
    assert of_logits(softmax(logits, 1)[:, :9]) == [], "a part of a head sums to anything"
    assert of_logits(np.ones((300, 1))) == []


def test_negative_top_logits_are_counted_by_set() -> None:
    assert of_negative_top_logits({"rows of known": (0, 10), "rows of far": (0, 5)}) == []
    (note,) = of_negative_top_logits({"rows of known": (2, 1000), "rows of near": (0, 7), "rows of far": (5, 5)})
    assert "negative in 2 of 1,000 rows of known, 5 of 5 rows of far;" in note


def test_features_that_were_changed_after_the_network(rng: np.random.Generator) -> None:
    _, features, logits, label = toy_set(1, 6, 24, 600)

    def notes(changed: np.ndarray) -> list[str]:
        return of_set(look(changed, logits, label))

    (normalised,) = notes(features / np.linalg.norm(features, axis=1, keepdims=True))
    assert "has length 1" in normalised
    (standardised,) = notes((features - features.mean(0)) / features.std(0))
    assert "mean 0 and standard deviation 1" in standardised
    (labelled,) = notes(np.c_[features, label])
    assert "column 24 of the features holds the labels" in labelled
    normalised_set = look(features / np.linalg.norm(features, axis=1, keepdims=True), logits, label)
    head = Head(np.ones((6, 24), np.float32), np.ones(6, np.float32))
    assert of_set(replace(normalised_set, head=head)) == [], "what the head reads is what it is"


def test_logits_that_do_not_follow_from_the_head() -> None:
    toy, features, _, label = toy_set(1, 6, 24, 600)
    head = Head(toy.weight, toy.bias)
    rows = look(features, toy.logits(features), label).sample
    assert of_head(rows, head) == []
    (note,) = of_head(look(features, toy.logits(features)[::-1], label).sample, head)
    assert "do not follow from the features and the head" in note


def fitted(features: np.ndarray, label: np.ndarray, classes: int) -> Gaussians:
    accumulator = Accumulator.empty(classes, features.shape[1])
    accumulator.update(features.astype(np.float32), label.astype(np.int32))
    return accumulator.finish()


def test_dimensions_that_outweigh_all_others(rng: np.random.Generator) -> None:
    toy, features, _, label = toy_set(1, 6, 64, 600)
    test, test_label = toy.known(rng, 400)
    rows = look(test, toy.logits(test), test_label).sample
    assert of_distances(rows, fitted(features, label, 6)) == []
    still = features.copy()
    still[:, 9] = 1e-6 * rng.normal(size=600)
    (note,) = of_distances(rows, fitted(still, label, 6))
    assert "1 of 64 dimension makes up" in note
    assert "(9)" in note


def test_classes_that_fit_lacks_are_named_with_their_rows() -> None:
    fit, known, all_four = (
        LabelCounts.of(label, np.zeros_like(label))
        for label in (np.array([0, 0, 1, -1]), np.array([0, 1, 2, 2, 3, -1]), np.arange(4))
    )
    assert lacking_classes(known, all_four, str) == []
    assert lacking_classes(known, fit, "class {}".format) == [
        "2 classes of known have no row in fit: class 2, class 3 (3 of 6 knowns)"
    ]


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(1, 1500), st.integers(0, 60))
def test_twins_are_found_and_nothing_else(seed: int, dimensions: int, rows: int, shared: int) -> None:
    rng = np.random.default_rng(seed)
    mine, others = (rng.normal(size=(n, dimensions)).astype(np.float32) for n in (rows, 700))
    shared = min(shared, rows)
    mine[:shared] = others[:shared] * np.float32(1 + 1e-6)  # as another batch would give them
    search = TwinSearch(mine)
    for part in np.array_split(rng.permutation(others), 3):
        search.look_in(part)
    assert search.found.tolist() == [True] * shared + [False] * (rows - shared)
    assert search.rows == rows


def test_rows_that_say_nothing_are_no_twins(rng: np.random.Generator) -> None:
    features = rng.normal(size=(50, 8)).astype(np.float32)
    features[10:20] = 0  # dead activations
    features[20:30] = features[5]
    search = TwinSearch(features)
    search.look_in(features)
    assert search.rows == 50 - 10 - 11
    assert search.found.sum() == search.rows
    assert of_shared_rows(3, 50, 50, "known", "fit") == ["3 of 50 rows of known are also in fit"]
    assert of_shared_rows(3, 50, 90, "known", "fit") == ["3 of 50 checked rows of known are also in fit"]
    assert of_shared_rows(0, 50, 90, "known", "fit") == []


def test_a_sample_is_all_of_few_rows_and_the_same_of_many() -> None:
    assert sample_places(5, 2048).tolist() == list(range(5))
    places = sample_places(100_000, 2048)
    assert len(np.unique(places)) == len(places) == 2048
    assert (places == sample_places(100_000, 2048)).all()
    assert (np.diff(places) > 0).all()
    assert (sample_size(2280), sample_size(23_121), sample_size(1_000_000)) == (2048, 725, 256)
