"""The code on docs/python.md does what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.toy_arrays import ToyArrays

import ghost_ray
from ghost_ray.backbone import load_backbone

PAGE = (Path(__file__).parents[2] / "docs/python.md").read_text()
ARRAYS = ToyArrays.make()


def block(*words: str) -> str:
    """The Python block of the page in which all the words stand."""
    found = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.S) if all(word in code for word in words)]
    assert len(found) == 1, words
    return found[0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("scores", "networks"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_ten_lines_without_ray_and_without_torch(folder: Path) -> None:
    sets = {"train": ARRAYS.fit, "test": ARRAYS.known}
    arrays = {f"{name}_{part}": values for name, rows in sets.items() for part, values in zip("xyz", rows, strict=True)}
    np.savez(folder / "arrays.npz", u_x=ARRAYS.unknown["far"][0], u_z=ARRAYS.unknown["far"][1], **arrays)
    code = block("np.load", "result.plot()")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    code += "import sys; print(gamma.shape, len(result.results), {'ray', 'torch', 'timm'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300)
    assert (ended.stdout, ended.stderr) == ("(400,) 3 set()\n", "")


def test_a_method_of_ones_own(folder: Path) -> None:
    (folder / "scores.py").write_text(block("class Norm(Scorer)"))
    sets = {"fit": ARRAYS.fit, "known": ARRAYS.known, "unknown": ARRAYS.unknown}
    result = ghost_ray.evaluate(**sets, methods=["ghost", "scores:Norm"], draw_size=100)
    known, unknown = (np.linalg.norm(rows[0], axis=1) for rows in (ARRAYS.known, ARRAYS.unknown["far"]))
    above = (known[:, None] > unknown).mean()
    measured = next(r for r in result.results if (r["method"], r["unknown"]) == ("scores:Norm", "far"))
    assert measured["auroc"] == pytest.approx(above, abs=1e-4)


def test_a_network_of_ones_own(folder: Path) -> None:
    code = block("def cifar()")
    assert len(code.strip().splitlines()) <= 18
    (folder / "networks.py").write_text(code)
    backbone = load_backbone("networks:cifar", device="cpu")
    assert (backbone.classes, backbone.dimensions, backbone.input_size) == (10, 512, (3, 32, 32))
    state = sys.modules["networks"].cifar().state_dict()
    torch.save({"state_dict": state}, folder / "checkpoint.pth.tar")
    loaded = load_backbone("networks:cifar", "checkpoint.pth.tar", device="cpu")
    np.testing.assert_array_equal(loaded.head.weight, state["fc.weight"].numpy())
