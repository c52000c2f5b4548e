"""The head of an import: under any customary name, in any kind of file, and noticed where it is another network's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.array_files import Arrays, npy

from ghost_ray.config import ImportConfig
from ghost_ray.errors import InputError
from ghost_ray.files.tensors import write_tensors
from ghost_ray.jobs.importing import run
from ghost_ray.store import Store


@pytest.fixture
def arrays(rng: np.random.Generator) -> Arrays:
    return Arrays.make(rng)


def importing(folder: Path, arrays: Arrays, head: str) -> dict[str, object]:
    return run(ImportConfig(**npy(folder, arrays), head=head, out=str(folder / "store")))


LAYERS = ["fc.", "head.", "head.fc.", "linear.", "classifier.", "module.fc.", "heads.head.", "", "my_own_layer."]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("suffix", [".pth", ".safetensors", ".npz"])
def test_a_head_is_found_under_any_name_among_other_tensors(
    tmp_path: Path, arrays: Arrays, layer: str, suffix: str
) -> None:
    tensors = {
        f"{layer}weight": arrays.weight,
        f"{layer}bias": arrays.bias,
        "body.weight": np.ones((7, 3), "f4"),
        "body.bias": np.ones(7, "f4"),
    }
    path = tmp_path / f"head{suffix}"
    if suffix == ".pth":
        torch.save({"state_dict": {name: torch.from_numpy(value) for name, value in tensors.items()}}, path)
    elif suffix == ".npz":
        np.savez(path, **tensors)
    else:
        write_tensors(str(path), tensors)
    importing(tmp_path, arrays, str(path))
    store = Store.open(str(tmp_path / "store"))
    head = store.head()
    assert head is not None
    np.testing.assert_array_equal(head.weight, arrays.weight)
    np.testing.assert_array_equal(head.bias, arrays.bias)
    assert not store.read(store.row_groups()[0]).has_logits


def test_of_two_that_fit_the_customary_one_is_the_head(tmp_path: Path, arrays: Arrays) -> None:
    path = str(tmp_path / "head.safetensors")
    tensors = {"fc.weight": arrays.weight, "fc.bias": arrays.bias, "aux.weight": 0 * arrays.weight}
    write_tensors(path, tensors)
    assert importing(tmp_path, arrays, path)["notes"] == []


def test_of_two_unnamed_ones_a_name_decides(tmp_path: Path, arrays: Arrays) -> None:
    path = str(tmp_path / "head.safetensors")
    write_tensors(path, {"one.weight": 0 * arrays.weight, "two.weight": arrays.weight, "two.bias": arrays.bias})
    with pytest.raises(InputError, match=r"several weights of 4×7.*one.weight 4×7 F32, two.weight.*head=FILE#NAME"):
        importing(tmp_path, arrays, path)
    assert importing(tmp_path, arrays, f"{path}#two")["head"] is True


def test_a_convolution_of_one_pixel_is_a_linear_layer_without_bias(tmp_path: Path, arrays: Arrays) -> None:
    arrays = Arrays(arrays.features, arrays.logits - arrays.bias, arrays.labels, arrays.weight, arrays.bias)
    torch.save({"classifier.weight": torch.from_numpy(arrays.weight)[:, :, None, None]}, tmp_path / "head.th")
    assert importing(tmp_path, arrays, str(tmp_path / "head.th"))["head"] is True


def test_a_head_of_another_network_is_noticed_and_the_logits_are_kept(tmp_path: Path, arrays: Arrays) -> None:
    path = str(tmp_path / "head.safetensors")
    write_tensors(path, {"weight": arrays.weight * 1.1, "bias": arrays.bias})
    result = importing(tmp_path, arrays, path)
    assert result["head"] is False
    (note,) = result["notes"]
    assert "logits do not follow from features and head" in note
    store = Store.open(str(tmp_path / "store"))
    assert store.manifest.notes == [note]
    assert store.read(store.row_groups()[0]).has_logits


def test_a_head_of_another_shape_is_refused_with_what_was_found(tmp_path: Path, arrays: Arrays) -> None:
    path = str(tmp_path / "head.safetensors")
    write_tensors(path, {"fc.weight": arrays.weight[:3], "fc.bias": arrays.bias[:3]})
    with pytest.raises(InputError, match=r"no weight of 4×7 \(classes × dimensions\); it holds fc.weight 3×7 F32"):
        importing(tmp_path, arrays, path)
    write_tensors(path, {"W": arrays.weight.T, "b": arrays.bias})
    with pytest.raises(InputError, match=r"W 7×4 F32.*transpose it"):
        importing(tmp_path, arrays, path)
    write_tensors(path, {"weight": arrays.weight, "bias": arrays.bias[:3]})
    with pytest.raises(InputError, match="bias 3 F32, expected 4 biases"):
        importing(tmp_path, arrays, path)
