"""The same arrays in every kind of file that ``import`` reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file

Files = dict[str, str]  # the settings of an import: features, logits, labels, keys


@dataclass(frozen=True)
class Arrays:
    """Features and logits of N rows, as computed by other code."""

    features: np.ndarray  # [N, D] float32
    logits: np.ndarray  # [N, K] float32
    labels: np.ndarray  # [N] int64
    weight: np.ndarray  # [K, D] float32
    bias: np.ndarray  # [K] float32

    @classmethod
    def make(cls, rng: np.random.Generator, rows: int = 500, dimensions: int = 7, classes: int = 4) -> Arrays:
        weight = rng.standard_normal((classes, dimensions)).astype("f4")
        bias = (20 + rng.standard_normal(classes)).astype("f4")  # no top logit is negative
        features = (2 * rng.standard_normal((rows, dimensions)) + 1).astype("f4")
        logits = features @ weight.T + bias
        noisy = rng.random(rows) < 0.2
        labels = np.where(noisy, rng.integers(0, classes, rows), logits.argmax(1))
        return cls(features, logits, labels, weight, bias)

    def rounded(self) -> Arrays:
        """The same with numbers that bfloat16 has too."""
        return dataclasses.replace(self, features=_bfloat16(self.features), logits=_bfloat16(self.logits))

    @property
    def named(self) -> dict[str, np.ndarray]:
        return {"features": self.features, "logits": self.logits, "labels": self.labels}


def _bfloat16(array: np.ndarray) -> np.ndarray:
    return torch.from_numpy(array).bfloat16().float().numpy()


Writer = Callable[[Path, Arrays], Files]
WRITERS: dict[str, Writer] = {}


def writes(name: str) -> Callable[[Writer], Writer]:
    def register(writer: Writer) -> Writer:
        WRITERS[name] = writer
        return writer

    return register


def _in_one(path: Path, **names: str) -> Files:
    fields = ("features", "logits", "labels")
    return {field: f"{path}#{names[field]}" if field in names else str(path) for field in fields}


@writes("npy")
def npy(folder: Path, arrays: Arrays) -> Files:
    for name, array in arrays.named.items():
        np.save(folder / f"{name}.npy", array)
    return {name: str(folder / f"{name}.npy") for name in arrays.named}


@writes("npy in Fortran's order")
def fortran(folder: Path, arrays: Arrays) -> Files:
    files = npy(folder, arrays)
    np.save(files["features"], np.asfortranarray(arrays.features))
    return files


@writes("npz")
def npz(folder: Path, arrays: Arrays) -> Files:
    np.savez(folder / "all.npz", **arrays.named)
    return _in_one(folder / "all.npz")


@writes("npz, compressed, with names of one's own")
def packed_npz(folder: Path, arrays: Arrays) -> Files:
    np.savez_compressed(folder / "all.npz", a=arrays.features, b=arrays.logits, c=arrays.labels)
    return _in_one(folder / "all.npz", features="a", logits="b", labels="c")


@writes("torch, a dict")
def torch_dict(folder: Path, arrays: Arrays) -> Files:
    tensors = {name: torch.from_numpy(array) for name, array in arrays.named.items()}
    torch.save({"test": {**tensors, "epoch": 3}}, folder / "all.pth")
    return _in_one(folder / "all.pth")


@writes("torch, a tensor per file")
def torch_files(folder: Path, arrays: Arrays) -> Files:
    for name, array in arrays.named.items():
        torch.save(torch.from_numpy(array), folder / f"{name}.pt")
    return {name: str(folder / f"{name}.pt") for name in arrays.named}


@writes("torch, the old format")
def old_torch(folder: Path, arrays: Arrays) -> Files:
    tensors = {name: torch.from_numpy(array) for name, array in arrays.named.items()}
    torch.save(tensors, folder / "all.pt", _use_new_zipfile_serialization=False)
    return _in_one(folder / "all.pt")


@writes("safetensors")
def safetensors(folder: Path, arrays: Arrays) -> Files:
    save_file(arrays.named, folder / "all.safetensors")
    return _in_one(folder / "all.safetensors")


@writes("parquet, lists")
def parquet_lists(folder: Path, arrays: Arrays) -> Files:
    table = pa.table(
        {
            "path": [f"{row}.jpg" for row in range(len(arrays.labels))],
            "label": arrays.labels,
            "embedding": pa.array(list(arrays.features)),
            "logits": pa.array(list(arrays.logits)),
        }
    )
    pq.write_table(table, folder / "all.parquet", row_group_size=64)
    return _in_one(folder / "all.parquet")


@writes("parquet, a folder of files with lists of one length")
def parquet_folder(folder: Path, arrays: Arrays) -> Files:
    def lists(values: np.ndarray) -> pa.Array:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])

    table = pa.table({"y": arrays.labels.astype("i2"), "feats": lists(arrays.features), "logits": lists(arrays.logits)})
    (folder / "parts").mkdir()
    for number, start in enumerate(range(0, table.num_rows, 200)):
        pq.write_table(table.slice(start, 200), folder / "parts" / f"{number:03d}.parquet")
    return _in_one(folder / "parts")


def _numbered(arrays: Arrays) -> pd.DataFrame:
    # Not in order: ten columns or more would not come in order either.
    columns = {f"feat_{d}": arrays.features[:, d] for d in reversed(range(arrays.features.shape[1]))}
    columns |= {f"logit_{k}": arrays.logits[:, k] for k in range(arrays.logits.shape[1])}
    return pd.DataFrame({"target": arrays.labels, **columns})


@writes("parquet, numbered columns")
def parquet_columns(folder: Path, arrays: Arrays) -> Files:
    _numbered(arrays).to_parquet(folder / "all.parquet")
    return _in_one(folder / "all.parquet")


@writes("csv, numbered columns and pandas' index")
def csv(folder: Path, arrays: Arrays) -> Files:
    _numbered(arrays).to_csv(folder / "all.csv", float_format="%.9g")
    return _in_one(folder / "all.csv")


@writes("csv, columns by name")
def csv_names(folder: Path, arrays: Arrays) -> Files:
    letters = "abcdefghijklmnopqrstuvwxyz"
    features = {letters[d]: arrays.features[:, d] for d in range(arrays.features.shape[1])}
    logits = {f"{letters[k]}_": arrays.logits[:, k] for k in range(arrays.logits.shape[1])}
    frame = pd.DataFrame({**features, **logits, "which": arrays.labels})
    frame.to_csv(folder / "all.csv", index=False, float_format="%.9g", sep=";")
    return _in_one(folder / "all.csv", features=",".join(features), logits=",".join(logits), labels="which")


@writes("text of numpy.savetxt")
def savetxt(folder: Path, arrays: Arrays) -> Files:
    np.savetxt(folder / "features.txt", arrays.features, fmt="%.9g")
    np.savetxt(folder / "logits.tsv", arrays.logits, fmt="%.9g", delimiter="\t")
    np.savetxt(folder / "labels.txt", arrays.labels, fmt="%d")
    return {
        "features": str(folder / "features.txt"),
        "logits": str(folder / "logits.tsv"),
        "labels": str(folder / "labels.txt"),
    }


@writes("csv of pandas, the columns counted")
def pandas_counted(folder: Path, arrays: Arrays) -> Files:
    for name in ("features", "logits"):
        pd.DataFrame(arrays.named[name]).to_csv(folder / f"{name}.csv", index=False, float_format="%.9g")
    pd.DataFrame({"label": arrays.labels}).to_csv(folder / "labels.csv", index=False)
    return {name: str(folder / f"{name}.csv") for name in arrays.named}


@writes("float64 in [N, D, 1, 1], labels in [N, 1]")
def more_axes(folder: Path, arrays: Arrays) -> Files:
    files = npy(folder, arrays)
    np.save(files["features"], arrays.features.astype("f8")[:, :, None, None])
    np.save(files["labels"], arrays.labels[:, None].astype("f4"))
    return files


@writes("bfloat16, of numbers that bfloat16 has")
def bfloat16(folder: Path, arrays: Arrays) -> Files:
    arrays = arrays.rounded()
    files = npy(folder, arrays)
    save_torch_file({"x": torch.from_numpy(arrays.features).bfloat16()}, folder / "features.safetensors")
    torch.save(torch.from_numpy(arrays.logits).bfloat16(), folder / "logits.pt")
    return files | {"features": str(folder / "features.safetensors"), "logits": str(folder / "logits.pt")}
