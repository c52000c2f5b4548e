"""Results as people see them in a notebook: tables, figures, data frames; and the estimator under scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from support.toy_arrays import ToyArrays

import ghost_ray
from ghost_ray.errors import InputError
from ghost_ray.scorers import title_of

ARRAYS = ToyArrays.make()
METHODS = ["ghost", "msp", "knn:k=10"]


@pytest.fixture(scope="module")
def evaluated() -> ghost_ray.OpenSetEvaluation:
    return ghost_ray.evaluate(
        fit=ARRAYS.fit, known=ARRAYS.known, unknown=ARRAYS.unknown, methods=METHODS, draw_size=100
    )


@pytest.fixture(scope="module")
def audited() -> ghost_ray.Audit:
    return ghost_ray.audit(*ARRAYS.fit)


def test_an_evaluation_is_a_table(evaluated: ghost_ray.OpenSetEvaluation) -> None:
    html = evaluated._repr_html_()
    for method in METHODS:
        assert f"<th>{title_of(method)}</th>" in html
    frame = evaluated.to_pandas()
    assert frame.shape[0] == len(evaluated.results) == 6
    assert list(frame.columns[:4]) == ["method", "unknown", "auoscr", "auroc"]
    for row, result in zip(frame.to_dict("records"), evaluated.results, strict=True):
        assert all(row[name] == result[name] for name in ("method", "unknown", "auoscr", "fpr95"))
        assert f"{result['auoscr']:.3f}" in html
    assert f"Closed-set accuracy {evaluated.closed_set_accuracy:.4f}" in repr(evaluated)
    assert set(evaluated.curves()["curve"]) == {"oscr", "roc", "oscr_top", "oscr_bottom", "v"}
    assert {test["method"] for test in evaluated.significance["tests"]} == set(METHODS[1:])


def test_names_from_elsewhere_are_no_markup() -> None:
    rows = ARRAYS.unknown["near"]
    result = ghost_ray.evaluate(
        fit=ARRAYS.fit, known=ARRAYS.known, unknown={"a.b": rows}, methods=["ghost"], class_names=["<b>", *"wxyz"]
    )
    assert "<b></b>" not in result._repr_html_()
    model = ghost_ray.fit(*ARRAYS.fit, model="<script>")
    assert "<script>" not in model._repr_html_()


def test_an_audit_stands_beside_the_papers_networks(audited: ghost_ray.Audit) -> None:
    html = audited._repr_html_()
    assert audited.verdict in html
    for name in ("These features", "Swin-T", "DenseNet-121"):
        assert f"<td>{name}</td>" in html
    assert audited.to_pandas().shape == (60, 8)
    assert "worst_classes" in dir(audited)
    with pytest.raises(AttributeError, match="an audit has no 'reject'"):
        _ = audited.reject


def test_results_draw_themselves(
    evaluated: ghost_ray.OpenSetEvaluation, audited: ghost_ray.Audit, tmp_path: Path
) -> None:
    for result in (evaluated, audited):
        figure = result.plot()
        (tmp_path / "figure.png").write_bytes(figure._repr_png_())
        with Image.open(tmp_path / "figure.png") as picture:
            assert min(picture.size) > 200
            assert len(set(picture.convert("L").resize((50, 50)).tobytes())) > 10, "the figure is blank"
    curves = evaluated.plot("evaluation-near-oscr-curves")
    lines = {line.get_label(): np.asarray(line.get_xydata()) for line in curves.axes[0].get_lines()}
    assert set(lines) == {title_of(method) for method in METHODS}
    points = evaluated.curves().query("curve == 'oscr' and unknown == 'near' and method == 'ghost'")
    np.testing.assert_allclose(lines["GHOST"][-1], points[["x", "y"]].to_numpy()[-1])
    with pytest.raises(InputError, match="is not a figure of this result; the figures are evaluation-near-oscr-curves"):
        evaluated.plot("oscr")


def test_the_estimator_is_one_for_scikit_learn() -> None:
    model = ghost_ray.Ghost(model="resnet", class_names=[*"abcde"])
    copy = clone(model)
    assert copy.get_params() == model.get_params() == {"model": "resnet", "class_names": [*"abcde"]}
    assert copy.set_params(model="other").model == "other"
    with pytest.raises(InputError, match="is not a parameter; the parameters are model, class_names"):
        copy.set_params(k=3)
    assert repr(ghost_ray.Ghost()) == "Ghost(model='imported')"
    assert "not fitted" in model._repr_html_()
    fitted = model.fit(*ARRAYS.fit)
    assert fitted is model
    assert "none chosen" in fitted._repr_html_()
    frame = fitted.to_pandas()
    assert frame["n"].sum() == fitted.gaussians_.count.sum()


def test_a_store_as_arrays_and_as_batches(tmp_path: Path) -> None:
    stores = ARRAYS.write(tmp_path)
    store = ghost_ray.open_store(stores["fit"])
    features, labels, logits = store.arrays()
    order = np.argsort(ARRAYS.fit[1], kind="stable")
    np.testing.assert_array_equal(features, ARRAYS.fit[0][order])
    np.testing.assert_array_equal(labels, ARRAYS.fit[1][order])
    np.testing.assert_allclose(logits, ARRAYS.fit[2][order], rtol=1e-5)
    assert (len(store), store.shape, store.classes, store.class_names) == (900, (900, 12), 5, None)
    np.testing.assert_array_equal(store.head[0], ARRAYS.head[0])
    batches = list(store.batches())
    np.testing.assert_array_equal(
        np.concatenate([batch.predictions for batch in batches]), ARRAYS.fit[2].argmax(1)[order]
    )
    assert batches[0].keys[0] == f"{order[0]:03d}"
    assert "900 rows of imported (K=5, D=12" in repr(store)
    np.testing.assert_array_equal(
        ghost_ray.fit(*store.arrays()).gaussians_.mean, ghost_ray.fit(*ARRAYS.fit).gaussians_.mean
    )


def test_what_the_rows_tell_of_is_shown(tmp_path: Path) -> None:
    features, labels, logits = ARRAYS.fit
    assert not any("probabilities" in note for note in ghost_ray.fit(features, labels, logits).notes_)
    softmax = np.exp(logits - logits.max(1, keepdims=True))
    model = ghost_ray.fit(features, labels, softmax / softmax.sum(1, keepdims=True))
    assert any("probabilities" in note for note in model.notes_)
    assert all(f"<p>{note}</p>" in model._repr_html_() for note in model.notes_)
    model.save(str(tmp_path / "model"))
    assert ghost_ray.Ghost.load(str(tmp_path / "model")).notes_ == model.notes_
