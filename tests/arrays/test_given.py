"""What cannot be: one line that names the argument, what was found and what is wanted."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from support.toy_arrays import ToyArrays

import ghost_ray
from ghost_ray.errors import InputError

ARRAYS = ToyArrays.make()
FEATURES, LABELS, LOGITS = ARRAYS.fit


def with_value(array: np.ndarray, at: tuple[int, ...], value: float) -> np.ndarray:
    changed = array.copy()
    changed[at] = value
    return changed


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ((FEATURES[:, 0], LABELS, LOGITS), "features: has shape [900], expected [N, D]"),
        ((FEATURES[:, :, None], LABELS, LOGITS), "features: has shape [900, 12, 1], expected [N, D]"),
        ((torch.ones(3, 4, 5), LABELS, LOGITS), "features: has shape [3, 4, 5], expected [N, D]"),
        ((FEATURES[:0], LABELS[:0], LOGITS[:0]), "features: has shape [0, 12]: there are no rows"),
        ((FEATURES.astype(str), LABELS, LOGITS), "features: holds values of type <U"),
        (([[1.0], [1.0, 2.0]], LABELS, LOGITS), "features: is not an array"),
        ((with_value(FEATURES, (7, 3), np.nan), LABELS, LOGITS), "features: row 7 holds a NaN or an infinity"),
        (
            (FEATURES.astype(np.float64) * 1e300, LABELS, LOGITS),
            "features: row 0 holds a NaN or an infinity (as float32)",
        ),
        ((FEATURES, LABELS, with_value(LOGITS, (9, 0), np.inf)), "logits: row 9 holds a NaN or an infinity"),
        ((FEATURES, LABELS, LOGITS[:-1]), "logits: has shape [899, 5], expected [900, K]"),
        ((FEATURES, LABELS[:-1], LOGITS), "labels: has shape [899], expected [900]"),
        ((FEATURES, np.eye(5)[LABELS], LOGITS), "labels: has shape [900, 5], expected [900] — one-hot rows"),
        ((FEATURES, LABELS + 1, LOGITS), "allowed: −1…4 — they run from 1 to 5: subtract 1"),
        ((FEATURES, LABELS + 0.5, LOGITS), "labels: labels must be whole numbers or names"),
        ((FEATURES, (LOGITS.argmax(1) + 1) % 5, LOGITS), "no class has two correctly classified rows: 0 of 900 are"),
        ((FEATURES, LABELS, None), "logits: are needed, or `predictions`"),
    ],
)
def test_wrong_arrays(arrays: tuple[Any, ...], said: str) -> None:
    for call in (ghost_ray.fit, ghost_ray.audit):
        if call is ghost_ray.audit and "correctly" in said:
            said = "no class has three correctly classified rows that differ"
        with pytest.raises(InputError, match=re.escape(said)) as caught:
            call(*arrays)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("predictions", "said"),
    [
        (LABELS - 1, "predictions: row "),
        (LABELS.astype(float), "predictions: are of type float64, expected class indices"),
        (LABELS[:, None], "predictions: has shape [900, 1], expected [900]"),
    ],
)
def test_wrong_predictions(predictions: np.ndarray, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        ghost_ray.fit(FEATURES, LABELS, predictions=predictions)


def test_logits_and_predictions_exclude_each_other() -> None:
    with pytest.raises(InputError, match="logits: are given with `predictions`"):
        ghost_ray.fit(FEATURES, LABELS, LOGITS, predictions=LABELS)


def test_class_names_are_counted_and_may_be_the_labels() -> None:
    with pytest.raises(InputError, match="class_names: has 2 names, expected 5"):
        ghost_ray.fit(FEATURES, LABELS, LOGITS, class_names=["a", "b"])
    names = np.array([*"vwxyz"])
    named = ghost_ray.fit(FEATURES, names[LABELS], LOGITS)
    np.testing.assert_array_equal(named.gaussians_.mean, ghost_ray.fit(*ARRAYS.fit).gaussians_.mean)
    assert named.to_pandas()["name"].tolist() == names.tolist()


def test_scoring_rows_of_another_network() -> None:
    model = ghost_ray.fit(*ARRAYS.fit)
    with pytest.raises(InputError, match=re.escape("features: has shape [900, 11], expected [N, 12]")):
        model.score(FEATURES[:, 1:], LOGITS)
    with pytest.raises(InputError, match=re.escape("logits: has shape [900, 4], expected [900, 5]")):
        model.score(FEATURES, LOGITS[:, 1:])


def test_unfitted_use() -> None:
    model = ghost_ray.Ghost()
    for use in (
        lambda: model.score(FEATURES, LOGITS),
        lambda: model.threshold(accept_known=0.9, features=FEATURES, logits=LOGITS),
        lambda: model.predict(FEATURES, LOGITS),
        lambda: model.save("nowhere"),
        lambda: model.to_pandas(),
    ):
        with pytest.raises(InputError, match=r"Ghost: is not fitted — call fit, or Ghost\.load"):
            use()
    with pytest.raises(InputError, match="no threshold was chosen yet"):
        model.fit(*ARRAYS.fit).predict(FEATURES, LOGITS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "one of `accept_known` and `accept_fpr` is needed"),
        ({"accept_known": 0.9, "accept_fpr": 0.1}, "one of `accept_known` and `accept_fpr` is needed"),
        ({"accept_known": 95}, "accept_known '95': must be between 0 and 1"),
        ({"accept_known": 0}, "accept_known '0': must be between 0 and 1"),
        ({"accept_fpr": float("nan")}, "accept_fpr 'nan': must be between 0 and 1"),
    ],
)
def test_wrong_shares(options: dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        ghost_ray.fit(*ARRAYS.fit).threshold(features=FEATURES, logits=LOGITS, **options)


def evaluate(**changes: Any) -> None:
    sets: dict[str, Any] = {"fit": ARRAYS.fit, "known": ARRAYS.known, "unknown": ARRAYS.unknown}
    ghost_ray.evaluate(**{**sets, "methods": ["ghost", "msp"], **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fit": ARRAYS.fit[:2]}, "fit: is a tuple of 2, expected (features, labels, logits)"),
        ({"known": FEATURES}, "known: is a ndarray, expected (features, labels, logits)"),
        ({"unknown": {"u": (FEATURES,)}}, "unknown['u']: is a tuple of 1, expected (features, logits)"),
        ({"unknown": {}}, "unknown: must be a dict of name to (features, logits)"),
        ({"unknown": (FEATURES, LOGITS)}, "unknown: must be a dict of name to (features, logits)"),
        ({"unknown": {"u": (FEATURES, LOGITS[1:])}}, "unknown['u'].logits: has shape [899, 5], expected [900, K]"),
        (
            {"unknown": {"u": (FEATURES[:, 1:], LOGITS)}},
            "unknown['u']: has K=5 classes and D=11 dimensions, expected K=5, D=12",
        ),
        ({"unknown": {"known": (FEATURES, LOGITS)}}, "is the name of the known set"),
        (
            {"known": (FEATURES, LABELS - 1, LOGITS)},
            "has rows without a label — −1 means unknown: give every row its class, or leave such rows out",
        ),
        ({"fit": (FEATURES, np.full(len(LABELS), -1), LOGITS)}, "has no labelled rows — −1 means unknown"),
        (
            {"known": (FEATURES, np.array(["cat", "dog"])[LABELS % 2], LOGITS)},
            "`class_names=[…]` with the names of all classes, in the order of the logits",
        ),
        ({"methods": ["ghots"]}, "nearest: 'ghost'"),
        (
            {"methods": ["react"], "known": (FEATURES, LABELS, LOGITS**3)},
            "react needs the network's linear head (weight and bias), and none is known — give `head=(weight, bias)`, "
            "since features and logits do not tell what it is, or leave out react",
        ),
        (
            {"methods": ["react"], "head": (ARRAYS.head[0] + 1, ARRAYS.head[1])},
            "give the right `head`: fit: logits do not follow from features and head (they differ by up to",
        ),
        ({"head": LOGITS}, "head: is a ndarray, expected (weight, bias) or a torch.nn.Linear"),
        ({"head": ARRAYS.head[::-1]}, "head.weight: has shape [5], expected [5, 12]"),
        ({"draws": 1}, "draws '1': input should be greater than or equal to 2"),
        ({"group": {"g": ["nowhere"]}}, "there is no `unknown` 'nowhere'"),
    ],
)
def test_wrong_evaluations(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        evaluate(**changes)


def test_a_head_that_the_logits_do_not_follow_from_is_left_out_with_a_note() -> None:
    weight, bias = ARRAYS.head
    result = ghost_ray.evaluate(
        fit=ARRAYS.fit, known=ARRAYS.known, unknown=ARRAYS.unknown, head=(weight + 1, bias), methods=["ghost", "msp"]
    )
    notes = [note for note in result.notes if "the head is left out" in note]
    assert [note.split(":")[0] for note in notes] == ["fit", "known", "unknown['near']", "unknown['far']"]


def test_a_head_that_features_and_logits_tell_of_need_not_be_given() -> None:
    given = {"fit": ARRAYS.fit, "known": ARRAYS.known, "unknown": ARRAYS.unknown}
    methods = ["ghost", "msp", "react", "vim"]
    told = ghost_ray.evaluate(**given, methods=methods, head=ARRAYS.head)
    recovered = ghost_ray.evaluate(**given, methods=methods)
    assert any("recovered from features and logits by least squares" in note for note in recovered.notes)
    for field in ("auroc", "auoscr"):
        assert recovered.to_pandas()[field].tolist() == pytest.approx(told.to_pandas()[field].tolist(), abs=1e-3)
    # Nothing else changes, and nothing is said, where no method needs it.
    plain = ghost_ray.evaluate(**given, methods=methods[:2])
    assert not any("recovered" in note for note in plain.notes)
    assert [r for r in recovered.results if r["method"] in methods[:2]] == plain.results


def test_a_head_that_several_could_be_is_not_guessed() -> None:
    """Fewer rows than dimensions: infinitely many layers make these logits."""
    few = tuple(part[:10] for part in ARRAYS.fit)
    with pytest.raises(InputError, match=r"give `head=\(weight, bias\)`"):
        ghost_ray.evaluate(fit=few, known=ARRAYS.known, unknown=ARRAYS.unknown, methods=["react"])
