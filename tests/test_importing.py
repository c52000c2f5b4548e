"""``import``: the authors' arrays become a store, and arrays that cannot be one are told why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ghost_ray.config import ImportConfig
from ghost_ray.errors import InputError
from ghost_ray.importing import run
from ghost_ray.store import Store
from ghost_ray.tensors import write_tensors

N, D, K = 500, 7, 4


@pytest.fixture
def arrays(tmp_path: Path, rng: np.random.Generator) -> dict[str, np.ndarray]:
    weight, bias = rng.standard_normal((K, D)).astype("f4"), rng.standard_normal(K).astype("f4")
    features = rng.standard_normal((N, D)).astype("f4")
    found = {
        "features": features,
        "logits": features @ weight.T + bias,
        "labels": rng.integers(0, K, N),
        "weight": weight,
        "bias": bias,
    }
    for name in ("features", "logits", "labels"):
        np.save(tmp_path / f"{name}.npy", found[name])
    write_tensors(str(tmp_path / "head.safetensors"), {"weight": weight, "bias": bias})
    return found


def config(folder: Path, **changes: object) -> ImportConfig:
    paths = {name: str(folder / f"{name}.npy") for name in ("features", "logits", "labels")}
    return ImportConfig.model_validate({**paths, "out": str(folder / "store"), **changes})


def read_all(store: Store) -> dict[str, np.ndarray]:
    rows = [store.read(piece, keys=True) for piece in store.pieces()]
    at = np.concatenate([r.key.to_numpy(zero_copy_only=False).astype(int) for r in rows if r.key is not None])
    order = np.argsort(at)
    found = {name: np.concatenate([getattr(r, name) for r in rows])[order] for name in ("label", "pred", "embedding")}
    if rows[0].logits is not None:
        found["logits"] = np.concatenate([r.logits for r in rows if r.logits is not None])[order]
    return found


def test_every_row_arrives_once_clustered_by_class(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    result = run(config(tmp_path))
    store = Store.open(str(tmp_path / "store"))
    found = read_all(store)
    np.testing.assert_array_equal(found["embedding"], arrays["features"])
    np.testing.assert_array_equal(found["logits"], arrays["logits"])
    np.testing.assert_array_equal(found["label"], arrays["labels"])
    np.testing.assert_array_equal(found["pred"], arrays["logits"].argmax(1))
    assert store.head() is None
    assert (np.diff(store.read_labels()[0]) >= 0).all()
    assert result["accuracy"] == pytest.approx((arrays["logits"].argmax(1) == arrays["labels"]).mean())


def test_a_head_replaces_the_logits(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    run(config(tmp_path, head=str(tmp_path / "head.safetensors")))
    store = Store.open(str(tmp_path / "store"))
    head = store.head()
    assert head is not None
    np.testing.assert_array_equal(head[0], arrays["weight"])
    np.testing.assert_array_equal(head[1], arrays["bias"])
    assert "logits" not in read_all(store)


def test_the_authors_layout_has_the_truth_in_column_0(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    truth = arrays["labels"][:, None]
    np.save(tmp_path / "features.npy", np.hstack([truth, arrays["features"]]).astype("f4"))
    np.save(tmp_path / "logits.npy", np.hstack([truth, arrays["logits"]]).astype("f4"))
    run(config(tmp_path, labels=None))
    found = read_all(Store.open(str(tmp_path / "store")))
    np.testing.assert_array_equal(found["label"], arrays["labels"])
    np.testing.assert_array_equal(found["embedding"], arrays["features"])


def test_unknowns_have_no_class(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    assert run(config(tmp_path, unknown=True))["accuracy"] is None
    assert (read_all(Store.open(str(tmp_path / "store")))["label"] == -1).all()


def _spoil(folder: Path, name: str, change: object) -> None:
    array = np.load(folder / f"{name}.npy")
    np.save(folder / f"{name}.npy", change(array))  # type: ignore[operator]


def _with(array: np.ndarray, at: tuple[int, ...], value: float) -> np.ndarray:
    array[at] = value
    return array


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("features", lambda a: _with(a, (17, 3), np.nan), "row 17 holds a NaN"),
        ("logits", lambda a: _with(a, (5, 0), np.inf), "row 5 holds a NaN or an infinity"),
        ("labels", lambda a: _with(a, (9,), K), f"row 9 has label {K}"),
        ("labels", lambda a: a[:-1], "499 rows"),
        ("logits", lambda a: a[:-1], "499 rows"),
        ("labels", lambda a: a + 0.5, "whole numbers"),
        ("features", lambda a: a[:, 0], "2 axes"),
        ("features", lambda a: a.astype(object), "no readable .npy"),
        ("features", lambda a: a.astype("U4"), "numeric"),
        ("features", lambda a: a[:0], "500 rows"),
    ],
)
def test_wrong_arrays_are_named(
    tmp_path: Path, arrays: dict[str, np.ndarray], name: str, change: object, told: str
) -> None:
    _spoil(tmp_path, name, change)
    with pytest.raises(InputError, match=told):
        run(config(tmp_path))
    assert not (tmp_path / "store").exists()
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_head_of_another_network_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    other = {"weight": arrays["weight"] * 1.1, "bias": arrays["bias"]}
    write_tensors(str(tmp_path / "head.safetensors"), other)
    with pytest.raises(InputError, match="differs from --logits"):
        run(config(tmp_path, head=str(tmp_path / "head.safetensors")))


def test_class_names_are_kept_and_counted(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    names = tmp_path / "names.txt"
    names.write_text("ant\nbee\ncat\ndog\n")
    run(config(tmp_path, class_names=str(names)))
    assert Store.open(str(tmp_path / "store")).class_name(2) == "cat"
    names.write_text('["ant"]')
    with pytest.raises(InputError, match="1 names"):
        run(config(tmp_path, class_names=str(names), overwrite=True))
