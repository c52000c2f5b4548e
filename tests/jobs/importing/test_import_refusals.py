"""Arrays and files that cannot be imported: one line each, that names what was found."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.array_files import Arrays, npy

from ghost_ray.config import ImportConfig
from ghost_ray.errors import InputError
from ghost_ray.files.tensors import write_tensors
from ghost_ray.jobs.importing import run

N, D, K = 500, 7, 4


@pytest.fixture
def files(tmp_path: Path, rng: np.random.Generator) -> dict[str, str]:
    return npy(tmp_path, Arrays.make(rng, N, D, K))


def refusal(folder: Path, files: dict[str, str], **changes: object) -> str:
    """What an import is refused with; it leaves nothing behind."""
    with pytest.raises(InputError) as caught:
        run(ImportConfig.model_validate({**files, "out": str(folder / "store"), **changes}))
    assert not (folder / "store").exists()
    assert not [p for p in folder.iterdir() if p.name.startswith(".")]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def _with(array: np.ndarray, at: tuple[int, ...], value: float) -> np.ndarray:
    array[at] = value
    return array


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("features", lambda a: _with(a, (17, 3), np.nan), "row 17 holds a NaN"),
        ("features", lambda a: _with(a.astype("f8"), (17, 3), 1e300), "row 17 holds a NaN or an infinity (as float32)"),
        ("logits", lambda a: _with(a, (5, 0), np.inf), "row 5 holds a NaN or an infinity"),
        ("labels", lambda a: _with(a, (9,), K), f"row 9 has label {K}"),
        ("labels", lambda a: a + 1, "they run from 1 to 4: subtract 1"),
        ("labels", lambda a: a[:-1], "499 rows"),
        ("logits", lambda a: a[:-1], "499 rows"),
        ("labels", lambda a: a + 0.5, "whole numbers"),
        ("labels", lambda a: np.eye(K)[a], "shape (500, 4), expected one value per row — one-hot"),
        ("labels", lambda a: a.astype("M8[s]"), "type datetime64[s]"),
        ("labels", lambda a: np.char.add("c", (a % 3).astype(str)), "one of 3 names and the head has 4 classes"),
        ("features", lambda a: a[:, 0], "has shape (500,), expected 2 axes"),
        ("features", lambda a: a.reshape(-1, D, 1, 1).repeat(2, 3), "shape (500, 7, 1, 2), expected 2 axes"),
        ("features", lambda a: a.astype(object), "holds Python objects, which are not loaded"),
        ("features", lambda a: a.astype("U4"), "holds text, expected numbers"),
        ("features", lambda a: a.astype("c8"), "values of type complex64"),
        ("features", lambda a: a[:0], "has no rows"),
        ("features", lambda a: a[:, :0], "has shape (500, 0), expected 1 to 1,000,000 columns"),
        ("logits", lambda a: a[:, :0], "has shape (500, 0), expected 1 to 10,000,000 columns"),
        ("features", lambda a: np.zeros((N, 1_000_001), "i1"), "expected 1 to 1,000,000 columns"),
        ("labels", lambda a: np.array(["a", "b", "c", "\ud800"])[a], "not valid text"),
    ],
)
def test_wrong_arrays_are_named(
    tmp_path: Path, files: dict[str, str], name: str, change: Callable[[np.ndarray], np.ndarray], told: str
) -> None:
    np.save(files[name], change(np.load(files[name])))
    message = refusal(tmp_path, files)
    assert message.startswith(f"{name} ")
    assert told in message


def _cut(path: Path, share: float = 0.5) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def _torch_of(value: object) -> Callable[[Path], None]:
    return lambda path: torch.save(value, path)


def _saved_and_cut(save: Callable[[Path], object], share: float = 0.5) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        save(path)
        _cut(path, share)

    return write


def _npz(path: Path, **arrays: np.ndarray) -> None:
    with path.open("wb") as handle:
        np.savez(handle, **arrays)


def _npy(path: Path) -> None:
    with path.open("wb") as handle:
        np.save(handle, np.ones((N, D), "f4"))


def _ragged(path: Path) -> None:
    pq.write_table(pa.table({"features": [[1.0, 2.0], [1.0, 2.0], [1.0]]}), path)


def _null(path: Path) -> None:
    pq.write_table(pa.table({"features": pa.array([[1.0], None])}), path)


def _script(path: Path) -> None:
    with pytest.warns(match="deprecated"):
        torch.jit.save(torch.jit.script(torch.nn.ReLU()), path)


# How a file is written, and what is said of it; every one is given as the features.
FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda p: p.write_bytes(b""), "is an empty file"),
    "pickle": (lambda p: p.write_bytes(pickle.dumps({"x": [1.0]})), "is a Python pickle"),
    "hdf5": (lambda p: p.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(90)), "is an HDF5 file"),
    "matlab": (lambda p: p.write_bytes(b"MATLAB 5.0 MAT-file, Platform"), "is a MATLAB file"),
    "json": (lambda p: p.write_text(json.dumps([[1.0, 2.0]])), "is a JSON file"),
    "html": (lambda p: p.write_text("<!DOCTYPE html><p>404"), "is an HTML page"),
    "lfs": (lambda p: p.write_text("version https://git-lfs.github.com/spec/v1\noid x"), "is a Git LFS pointer"),
    "gzip": (lambda p: p.write_bytes(gzip.compress(b"1,2\n")), "is a gzip-compressed file"),
    "image": (lambda p: p.write_bytes(b"\x89PNG\r\n\x1a\n"), "is an image"),
    "noise": (lambda p: p.write_bytes(bytes(range(256))), "is a binary file of unknown type"),
    "program": (_script, "is a TorchScript program"),
    "folder": (lambda p: p.mkdir(), "is a folder, but holds no .parquet file"),
    "cut npy": (_saved_and_cut(_npy), "is a NumPy array (.npy), but is truncated: 7,"),
    "cut npz": (_saved_and_cut(lambda p: _npz(p, x=np.ones(9))), "is a truncated or damaged zip archive"),
    "cut torch": (_saved_and_cut(_torch_of(torch.ones(99))), "is a truncated or damaged zip archive"),
    "cut safetensors": (
        _saved_and_cut(lambda p: write_tensors(str(p), {"x": np.ones((N, D), "f4")})),
        "is a safetensors file, but",
    ),
    "cut parquet": (_saved_and_cut(_ragged), "is a Parquet file, but"),
    "torch with numpy": (
        _torch_of({"features": np.ones((N, D), "f4")}),
        "is a PyTorch file, but holds an object of numpy._core.multiarray._reconstruct; only tensors",
    ),
    "torch with a module": (_torch_of(torch.nn.ReLU()), "holds an object of torch.nn.modules.activation.ReLU"),
    "torch without tensors": (_torch_of({"epoch": 3}), "holds nothing"),
    "npz of others": (
        lambda p: _npz(p, mean=np.ones(3), std=np.ones(3)),
        "holds mean 3 float64, std 3 float64 — say which with `features=FILE#NAME`",
    ),
    "npz of several": (
        lambda p: _npz(p, **{"a.features": np.ones((3, 2)), "b.features": np.ones((4, 2))}),
        "several arrays that could be the features: a.features 3×2 float64, b.features 4×2 float64",
    ),
    "words": (lambda p: p.write_text("ant\nbee\n"), "holds text, expected numbers"),
    "two words": (lambda p: p.write_text("a,b\n1,2\n3,four\n"), "CSV conversion error to double: invalid value 'four'"),
    "ragged csv": (lambda p: p.write_text("a,b\n1,2,3\n"), "line 1 has 2 cells and line 2 has 3"),
    "ragged later": (lambda p: p.write_text("a,b\n1,2\n1,2,3\n"), "Expected 2 columns, got 3"),
    "one name twice": (lambda p: p.write_text("a,a\n1,2\n"), "two of its columns are named 'a'"),
    "ragged parquet": (_ragged, "row 2 of features has 1 values, row 0 has 2"),
    "parquet with a null": (_null, "row 1 has no features"),
}


@pytest.mark.parametrize("name", FILES)
def test_wrong_files_are_told_by_what_they_are(tmp_path: Path, files: dict[str, str], name: str) -> None:
    write, told = FILES[name]
    path = tmp_path / "features.bin"
    write(path)
    message = refusal(tmp_path, {**files, "features": str(path)})
    assert message.startswith("features ")
    assert told in message
    assert "again" not in message  # advice to make a result again does not help with a stranger's file


@pytest.mark.parametrize("field", ["features", "logits", "labels", "keys", "head", "class_names"])
def test_a_file_that_is_not_there(tmp_path: Path, files: dict[str, str], field: str) -> None:
    message = refusal(tmp_path, {**files, field: str(tmp_path / "nowhere.npz")})
    assert message.startswith(f"{field} ")
    assert "does not exist" in message or "No such file" in message


def test_keys_and_names_that_are_not_text(tmp_path: Path, files: dict[str, str]) -> None:
    np.save(tmp_path / "keys.npy", np.array([f"{row}\udcff" for row in range(N)]))
    assert "not valid text" in refusal(tmp_path, files, keys=str(tmp_path / "keys.npy"))
    (tmp_path / "names.json").write_text('["a", "b", "c", "\\ud800"]')
    assert "is not valid JSON" in refusal(tmp_path, files, class_names=str(tmp_path / "names.json"))


def test_rows_that_are_one_row_repeated(tmp_path: Path, files: dict[str, str]) -> None:
    torch.save(torch.zeros(1, D).expand(10**10, D), tmp_path / "rows.pt")
    assert "and they are not in the file" in refusal(tmp_path, files, features=str(tmp_path / "rows.pt"))


def test_a_name_that_is_not_in_the_file(tmp_path: Path, files: dict[str, str]) -> None:
    np.savez(tmp_path / "all.npz", train_features=np.ones((3, 2)), logits=np.ones((3, 2)))
    message = refusal(tmp_path, {**files, "features": f"{tmp_path / 'all.npz'}#train_feature"})
    assert "holds no 'train_feature'; it holds train_features 3×2 float64, logits" in message
    assert "nearest: 'train_features'" in message


def test_a_head_that_is_no_file_of_tensors(tmp_path: Path, files: dict[str, str]) -> None:
    (tmp_path / "head.safetensors").write_text("not a safetensors file\n")
    message = refusal(tmp_path, {**files, "head": str(tmp_path / "head.safetensors")})
    assert "holds no weight of 4×7" in message
    assert "again" not in message


def test_settings_that_exclude_each_other(tmp_path: Path, files: dict[str, str]) -> None:
    for wrong in ({"restrict": True, "unknown": True}, {"unknown": True, "unknown_out": "u"}, {"unknown_out": "s"}):
        with pytest.raises((ValueError, InputError), match="`unknown"):
            ImportConfig.model_validate({**files, "out": "s", **wrong})
