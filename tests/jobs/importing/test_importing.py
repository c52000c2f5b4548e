"""``import``: arrays become a store, whatever kind of file they came in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from support.array_files import WRITERS, Arrays, npy

from ghost_ray.config import ImportConfig
from ghost_ray.errors import InputError
from ghost_ray.files.tensors import write_tensors
from ghost_ray.jobs.importing import run
from ghost_ray.store import ClusteredWriter, Store, row_schema, to_table


@pytest.fixture
def arrays(rng: np.random.Generator) -> Arrays:
    return Arrays.make(rng, dimensions=12)


def importing(folder: Path, files: dict[str, str], **changes: object) -> dict[str, object]:
    return run(ImportConfig.model_validate({**files, "out": str(folder / "store"), **changes}))


def read_all(store: Store) -> dict[str, np.ndarray]:
    """All rows in the order of their keys."""
    parts = [store.read_keyed(groups) for groups in store.row_groups()]
    at = np.concatenate([keys.to_numpy(zero_copy_only=False) for _, keys in parts])
    order = np.argsort(at)
    rows = [rows for rows, _ in parts]
    names = ["label", "pred", "embedding", *(["logits"] if rows[0].has_logits else [])]
    return {name: np.concatenate([getattr(r, name) for r in rows])[order] for name in names} | {"key": at[order]}


def row_bytes(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((store / "rows").iterdir())}


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path, arrays: Arrays, kind: str) -> None:
    if kind.startswith("bfloat16"):
        arrays = arrays.rounded()
    (tmp_path / "other").mkdir()
    (tmp_path / "npy").mkdir()
    importing(tmp_path / "npy", npy(tmp_path / "npy", arrays))
    importing(tmp_path / "other", WRITERS[kind](tmp_path / "other", arrays))
    assert row_bytes(tmp_path / "other" / "store") == row_bytes(tmp_path / "npy" / "store")
    files = sorted(p.name for p in (tmp_path / "other" / "store").iterdir())
    assert files == ["manifest.json", "row_groups.safetensors", "rows"]


def test_the_rows_lie_sorted_by_class_in_the_order_of_the_arrays(tmp_path: Path, arrays: Arrays) -> None:
    result = importing(tmp_path, npy(tmp_path, arrays))
    order = np.argsort(arrays.labels, kind="stable")
    writer = ClusteredWriter(str(tmp_path / "expected"), "part", row_schema(12, 4))
    keys = pa.array([f"{row:03d}" for row in order])
    pred = arrays.logits.argmax(1)
    writer.write(to_table(keys, arrays.labels[order], pred[order], arrays.features[order], arrays.logits[order]))
    writer.close()
    assert row_bytes(tmp_path / "store") == row_bytes(tmp_path / "expected")
    assert result["accuracy"] == pytest.approx((pred == arrays.labels).mean())
    store = Store.open(str(tmp_path / "store"))
    assert store.head() is None
    assert store.manifest.notes == []


def test_half_precision_becomes_single(tmp_path: Path, arrays: Arrays) -> None:
    files = npy(tmp_path, arrays)
    np.save(files["features"], arrays.features.astype("f2"))
    importing(tmp_path, files)
    found = read_all(Store.open(str(tmp_path / "store")))
    np.testing.assert_array_equal(found["embedding"], arrays.features.astype("f2").astype("f4"))


def test_the_authors_layout_has_the_truth_in_column_0(tmp_path: Path, arrays: Arrays) -> None:
    truth = arrays.labels[:, None]
    np.save(tmp_path / "f.npy", np.hstack([truth, arrays.features]).astype("f4"))
    np.savetxt(tmp_path / "l.csv", np.hstack([truth, arrays.logits]), fmt="%.9g", delimiter=",")
    importing(tmp_path, {"features": str(tmp_path / "f.npy"), "logits": str(tmp_path / "l.csv")})
    found = read_all(Store.open(str(tmp_path / "store")))
    np.testing.assert_array_equal(found["label"], arrays.labels)
    np.testing.assert_array_equal(found["embedding"], arrays.features)


def test_labels_in_the_file_of_the_features_need_no_option(tmp_path: Path, arrays: Arrays) -> None:
    files = WRITERS["npz"](tmp_path, arrays)
    del files["labels"]
    result = importing(tmp_path, files)
    np.testing.assert_array_equal(read_all(Store.open(str(tmp_path / "store")))["label"], arrays.labels)
    assert result["notes"] == ["labels: taken from labels in the file of the features"]


def test_unknowns_have_no_class_and_need_no_labels(tmp_path: Path, arrays: Arrays) -> None:
    files = npy(tmp_path, arrays)
    del files["labels"]
    result = importing(tmp_path, files, unknown=True)
    found = read_all(Store.open(str(tmp_path / "store")))
    assert (result["accuracy"], result["dimensions"]) == (None, 12)
    assert (found["label"] == -1).all()
    np.testing.assert_array_equal(found["embedding"], arrays.features)
    assert "column 0 is not the same" in result["notes"][0]


def test_unknowns_in_the_authors_layout_lose_the_truth(tmp_path: Path, arrays: Arrays) -> None:
    truth = np.full((len(arrays.labels), 1), -1)
    np.save(tmp_path / "f.npy", np.hstack([truth, arrays.features]).astype("f4"))
    np.save(tmp_path / "l.npy", np.hstack([truth, arrays.logits]).astype("f4"))
    importing(tmp_path, {"features": str(tmp_path / "f.npy"), "logits": str(tmp_path / "l.npy")}, unknown=True)
    np.testing.assert_array_equal(read_all(Store.open(str(tmp_path / "store")))["embedding"], arrays.features)


NAMES = ["ant", "bee", "cat", "dog"]


@pytest.mark.parametrize("kind", ["npy", "text", "torch"])
def test_labels_may_be_names(tmp_path: Path, arrays: Arrays, kind: str) -> None:
    files = npy(tmp_path, arrays)
    words = [NAMES[label] for label in arrays.labels]
    files["labels"] = str(tmp_path / "words")
    if kind == "npy":
        np.save(tmp_path / "words.npy", np.array(words))
        files["labels"] += ".npy"
    elif kind == "text":
        (tmp_path / "words").write_text("\n".join(words))
    else:
        torch.save(words, tmp_path / "words")
    importing(tmp_path, files)
    store = Store.open(str(tmp_path / "store"))
    np.testing.assert_array_equal(read_all(store)["label"], arrays.labels)
    assert store.manifest.class_names == NAMES


def test_names_are_found_in_the_table_of_names(tmp_path: Path, arrays: Arrays) -> None:
    files = npy(tmp_path, arrays)
    (tmp_path / "names.json").write_text('["zebra", "yak", "wolf", "vole"]')
    words = np.array(["zebra", "yak", "wolf", "-1"])[arrays.labels]
    np.save(files["labels"], words)
    importing(tmp_path, files, class_names=str(tmp_path / "names.json"))
    store = Store.open(str(tmp_path / "store"))
    np.testing.assert_array_equal(read_all(store)["label"], np.where(arrays.labels == 3, -1, arrays.labels))
    assert store.class_name(3) == "vole"
    np.save(files["labels"], np.array(["zebra", "yak", "wolf", "wol"])[arrays.labels])
    with pytest.raises(InputError, match=r"label 'wol' fits no class of the head.*nearest: 'wolf'"):
        importing(tmp_path, files, class_names=str(tmp_path / "names.json"), overwrite=True)


def test_keys_name_the_rows(tmp_path: Path, arrays: Arrays) -> None:
    files = WRITERS["parquet, lists"](tmp_path, arrays)
    importing(tmp_path, files, keys=files["features"])
    found = read_all(Store.open(str(tmp_path / "store")))
    wanted = [f"{row}.jpg" for row in range(500)]
    assert found["key"].tolist() == sorted(wanted)
    np.testing.assert_array_equal(found["embedding"], arrays.features[np.argsort(wanted)])
    (tmp_path / "keys.txt").write_text("\n".join(["same.jpg"] * 2 + wanted[2:]))
    with pytest.raises(InputError, match=r"'same\.jpg' names more than one row"):
        importing(tmp_path, files, keys=str(tmp_path / "keys.txt"), overwrite=True)


def test_a_mixed_set_becomes_two_stores(tmp_path: Path, arrays: Arrays) -> None:
    mixed = arrays.labels.copy()
    mixed[::3] = -1
    files = npy(tmp_path, arrays)
    np.save(files["labels"], mixed)
    result = importing(tmp_path, files, unknown_out=str(tmp_path / "unknown"))
    known, unknown = (read_all(Store.open(str(tmp_path / name))) for name in ("store", "unknown"))
    np.testing.assert_array_equal(known["label"], mixed[mixed >= 0])
    np.testing.assert_array_equal(known["embedding"], arrays.features[mixed >= 0])
    assert (unknown["label"] == -1).all()
    np.testing.assert_array_equal(unknown["embedding"], arrays.features[mixed < 0])
    assert (result["rows"], result["unknown_rows"]) == (int((mixed >= 0).sum()), int((mixed < 0).sum()))
    np.save(files["labels"], arrays.labels)
    with pytest.raises(InputError, match="no row labelled −1"):
        importing(tmp_path, files, unknown_out=str(tmp_path / "unknown"), overwrite=True)
    assert Store.open(str(tmp_path / "unknown")).rows == result["unknown_rows"]


def test_restrict_keeps_the_classes_that_occur(tmp_path: Path, arrays: Arrays) -> None:
    present = np.where(arrays.labels == 1, 3, arrays.labels)  # 0, 2 and 3
    files = npy(tmp_path, arrays)
    np.save(files["labels"], present)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(NAMES))
    write_tensors(str(tmp_path / "head.safetensors"), {"weight": arrays.weight, "bias": arrays.bias})
    importing(tmp_path, files, restrict=True, class_names=str(names), head=str(tmp_path / "head.safetensors"))
    store = Store.open(str(tmp_path / "store"))
    assert store.manifest.network.restricted_to == [0, 2, 3]
    assert store.manifest.class_names == ["ant", "cat", "dog"]
    found = read_all(store)
    np.testing.assert_array_equal(found["label"], np.searchsorted([0, 2, 3], present))
    np.testing.assert_array_equal(found["pred"], arrays.logits[:, [0, 2, 3]].argmax(1))
    head = store.head()
    assert head is not None
    np.testing.assert_array_equal(head.weight, arrays.weight[[0, 2, 3]])
    # The sets beside it are narrowed alike, and what was not kept has no place there.
    importing(tmp_path, files, unknown=True, restrict_like=str(tmp_path / "store"), out=str(tmp_path / "unknown"))
    unknown = Store.open(str(tmp_path / "unknown"))
    assert unknown.manifest.network.same_as(store.manifest.network)
    np.save(files["labels"], arrays.labels)
    with pytest.raises(InputError, match="is of class 1 of the whole head, which was not kept"):
        importing(tmp_path, files, restrict_like=str(tmp_path / "store"), out=str(tmp_path / "test"))


def test_class_names_are_kept_and_counted(tmp_path: Path, arrays: Arrays) -> None:
    files = npy(tmp_path, arrays)
    names = tmp_path / "names.txt"
    names.write_text("ant\nbee\ncat\ndog\n")
    importing(tmp_path, files, class_names=str(names))
    assert Store.open(str(tmp_path / "store")).class_name(2) == "cat"
    names.write_text('["ant"]')
    with pytest.raises(InputError, match="1 names"):
        importing(tmp_path, files, class_names=str(names), overwrite=True)
