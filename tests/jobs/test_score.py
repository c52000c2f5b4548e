"""The score job against plain numpy, its thresholds, and what it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from support.object_stores import object_store_in_environment
from support.stores import Toy, forget_digests, read_row_files, write_store, write_toy_model

from ghost_ray.config import DeviceConfig, ScoreConfig, build
from ghost_ray.errors import Damaged, InputError
from ghost_ray.jobs.score import run


@pytest.fixture(scope="module")
def toy() -> Toy:
    return Toy.make(np.random.default_rng(0))


@pytest.fixture
def place(tmp_path: Path, toy: Toy) -> Path:
    """A model and three stores of its network."""
    rng = np.random.default_rng(1)
    write_toy_model(tmp_path / "model", *toy.known(rng, 500), toy)
    write_store(tmp_path / "test", *toy.known(rng, 300), toy, group_rows=32)
    write_store(tmp_path / "val", *toy.known(rng, 200), toy)
    write_store(tmp_path / "unknown", toy.unknown(rng, 150), None, toy)
    return tmp_path


def config(place: Path, **options: object) -> ScoreConfig:
    given = {"gaussians": str(place / "model"), "store": str(place / "test"), "out": str(place / "scores.parquet")}
    return ScoreConfig.model_validate(given | options)


def plain_gamma(place: Path, toy: Toy, store: str) -> tuple[np.ndarray, np.ndarray]:
    """γ and labels of a store's rows, written out in numpy float64."""
    from safetensors.numpy import load_file

    table = read_row_files(place / store / "rows")
    embedding = np.stack(table["embedding"].to_numpy()).astype(np.float64)
    pred, label = table["pred"].to_numpy(), table["label"].to_numpy()
    gaussians = load_file(place / "model" / "gaussians.safetensors")
    mean, std = gaussians["mean"][pred].astype(np.float64), gaussians["std"][pred].astype(np.float64)
    logit = (embedding * toy.weight[pred]).sum(1) + toy.bias[pred]
    return logit / (np.abs(embedding - mean) / std).sum(1), label


def test_scores_are_gamma_in_the_stores_order(place: Path, toy: Toy) -> None:
    result = run(config(place, threshold=0.1))
    table = pq.read_table(place / "scores.parquet")
    assert table.schema.names == ["key", "pred", "score", "accepted"]
    expected, label = plain_gamma(place, toy, "test")
    np.testing.assert_allclose(table["score"].to_numpy(), expected, rtol=1e-6)
    accepted = table["accepted"].to_numpy()
    np.testing.assert_array_equal(accepted, table["score"].to_numpy() >= 0.1)
    correct = table["pred"].to_numpy() == label
    assert result["rows"] == result["knowns"] == 300
    assert result["accepted"] == result["knowns_accepted"] == accepted.sum()
    assert result["knowns_correct_and_accepted"] == (accepted & correct).sum()
    negative = int((expected < 0).sum())
    assert result["negative_top_logits"] == negative > 0
    assert f"the top logit is negative in {negative} of 300 rows" in result["notes"][0]
    keys = read_row_files(place / "test" / "rows")["key"]
    assert table["key"].to_pylist() == keys.to_pylist()


def test_threads_of_a_command_write_what_tasks_of_ray_write(place: Path) -> None:
    run(config(place, threshold=0.1))
    words = ["score", str(place / "model"), "--store", str(place / "test"), "--threshold", "0.1", "--json"]
    command = [sys.executable, "-m", "ghost_ray", *words, "--out", str(place / "threads.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (place / "threads.parquet").read_bytes() == (place / "scores.parquet").read_bytes()
    assert json.loads(done.stdout)["rows"] == 300


def test_stored_logits_serve_as_well_as_a_head(place: Path, toy: Toy) -> None:
    embedding, label = toy.known(np.random.default_rng(5), 100)
    write_store(place / "a", embedding, label, toy)
    write_store(place / "b", embedding, label, toy, stored_logits=True)
    found = []
    for name in "ab":
        run(config(place, threshold=0, store=str(place / name), out=str(place / f"{name}.parquet")))
        found.append(pq.read_table(place / f"{name}.parquet")["score"].to_numpy())
    np.testing.assert_allclose(*found, rtol=1e-5)


@pytest.mark.parametrize("share", [0.5, 0.95, 1.0])
def test_accept_known_keeps_that_share_and_hardly_more(place: Path, toy: Toy, share: float) -> None:
    result = run(config(place, store=str(place / "val"), accept_known=share, known=str(place / "val")))
    assert result["accepted"] == np.ceil(share * 200)
    kept = np.sort(plain_gamma(place, toy, "val")[0])[::-1][: result["accepted"]]
    assert result["threshold"] == pytest.approx(kept[-1], rel=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_accept_fpr_takes_the_lowest_threshold_allowed(place: Path, toy: Toy, share: float) -> None:
    result = run(config(place, store=str(place / "unknown"), accept_fpr=share, unknown=str(place / "unknown")))
    assert result["accepted"] == np.floor(share * 150)
    if share < 1:
        below = result["threshold"] - 5e-6 * abs(result["threshold"])
        again = run(config(place, store=str(place / "unknown"), threshold=below, overwrite=True))
        assert again["accepted"] > share * 150


def test_chosen_threshold_is_stored_and_used_next_time(place: Path) -> None:
    with pytest.raises(InputError, match=r"no threshold stored.*`accept_known=0"):
        run(config(place))
    assert not (place / "scores.parquet").exists()
    chosen = run(config(place, accept_known=0.9, known=str(place / "val")))
    stored = json.loads((place / "model" / "thresholds.json").read_text())
    assert stored == {
        "threshold": chosen["threshold"],
        "rule": "accept-known",
        "share": 0.9,
        "store": str(place / "val"),
        "rows": 200,
    }
    again = run(config(place, overwrite=True))
    assert again["threshold"] == chosen["threshold"]
    assert (again["stored"], chosen["stored"]) == (False, True)


def test_a_threshold_without_its_rule_is_used(place: Path) -> None:
    chosen = run(config(place, accept_known=0.9, known=str(place / "val")))
    forget_digests(place / "model")
    (place / "model" / "thresholds.json").write_text(json.dumps({"threshold": chosen["threshold"]}))
    again = run(config(place, overwrite=True))
    assert (again["threshold"], again["rule"]) == (chosen["threshold"], "threshold")
    (place / "model" / "thresholds.json").write_text(json.dumps({"threshold": 1.0, "rule": [1]}))
    with pytest.raises(InputError, match="its rule is not a word"):
        run(config(place, overwrite=True))


def test_a_threshold_chosen_in_a_version_is_used_and_not_stored(place: Path) -> None:
    version = place / "registry" / "versions" / "0001-0123456789ab"
    shutil.copytree(place / "model", version / "model")
    (version / "manifest.json").write_text("{}")
    result = run(config(place, gaussians=str(version / "model"), accept_known=0.9, known=str(place / "val")))
    assert not result["stored"]
    assert not (version / "model" / "thresholds.json").exists()


def test_verify_reads_every_byte_of_the_stores_first(place: Path) -> None:
    run(config(place, threshold=0.1, verify=True))
    rows = min((place / "test" / "rows").iterdir())
    content = bytearray(rows.read_bytes())
    content[len(content) // 2] ^= 1
    rows.write_bytes(content)
    with pytest.raises(Damaged, match=rf"rows/{rows.name} is not as it was written"):
        run(config(place, threshold=0.1, verify=True, overwrite=True))


def test_class_without_gaussian_is_rejected_and_named(place: Path, toy: Toy) -> None:
    rng = np.random.default_rng(2)
    embedding, label = toy.known(rng, 500)
    write_toy_model(place / "partial", embedding[label != 3], label[label != 3], toy)
    result = run(config(place, gaussians=str(place / "partial"), threshold=-1e300))
    table = pq.read_table(place / "scores.parquet")
    of_class = table["pred"].to_numpy() == 3
    assert of_class.any()
    assert np.isneginf(table["score"].to_numpy()[of_class]).all()
    assert result["accepted"] == (~of_class).sum()
    assert result["classes_without_gaussian"] == ["3"]
    with pytest.raises(InputError, match="classes without a Gaussian"):
        run(config(place, gaussians=str(place / "partial"), accept_known=1.0, known=str(place / "val"), overwrite=True))


def test_another_network_is_refused_naming_both(place: Path, toy: Toy) -> None:
    embedding, label = toy.known(np.random.default_rng(3), 50)
    write_store(place / "other", embedding, label, toy, network={"name": "resnet"})
    for options in ({"store": str(place / "other")}, {"accept_known": 0.9, "known": str(place / "other")}):
        with pytest.raises(InputError, match=r"resnet \(K=5.*toy \(K=5"):
            run(config(place, **({"threshold": 0.0} if "store" in options else {}), **options))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"gaussians": "nowhere", "threshold": 0}, "does not exist"),
        ({"store": "nowhere", "threshold": 0}, "does not exist"),
        ({"accept_known": 0.9, "known": "unknown"}, "without a label"),
        ({"accept_known": 0.0, "known": "val"}, "keeps no known"),
        ({"accept_fpr": 0.1, "unknown": "val"}, "with a label"),
        ({"store": "empty", "threshold": 0}, "empty"),
        ({"store": "nan", "threshold": 0}, "row 7 holds a NaN"),
        ({"threshold": 0, "out": "test"}, "which this command reads"),
        ({"threshold": 0, "out": "empty"}, "is a folder"),
    ],
)
def test_wrong_input_is_refused(place: Path, toy: Toy, options: dict[str, object], problem: str) -> None:
    embedding, label = toy.known(np.random.default_rng(4), 20)
    write_store(place / "empty", embedding[:0], label[:0], toy)
    embedding[7, 2] = np.nan
    write_store(place / "nan", embedding, label, toy, pred=label)
    at = {k: str(place / v) if isinstance(v, str) else v for k, v in options.items()}
    with pytest.raises(InputError, match=problem):
        run(config(place, **at))
    assert not (place / "scores.parquet").exists()
    assert not (place / "scores.parquet.partial").exists()


def test_existing_result_is_kept_without_overwrite(place: Path) -> None:
    run(config(place, threshold=0.5))
    before = (place / "scores.parquet").read_bytes()
    with pytest.raises(InputError, match="exists already"):
        run(config(place, threshold=0.1))
    assert (place / "scores.parquet").read_bytes() == before


@pytest.fixture(scope="module")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, their store, and a model of them."""
    from support.pictures import write_folder

    from ghost_ray.config import ExtractConfig, FitConfig
    from ghost_ray.jobs.extract import run as extract
    from ghost_ray.jobs.fit import run as fit

    place = tmp_path_factory.mktemp("pictured")
    write_folder(place / "images", per_class=5)
    options = {"data": str(place / "images"), "model": "support.networks:small", "out": str(place / "store")}
    extract(ExtractConfig.model_validate(options))
    fit(FitConfig.model_validate({"store": str(place / "store"), "out": str(place / "model")}))
    return place


def test_images_score_as_the_store_of_them_does(pictured: Path, tmp_path: Path) -> None:
    found = {}
    for name, options in {"store": {"store": "store"}, "data": {"data": "images", "store": None}}.items():
        at = {k: v and str(pictured / v) for k, v in options.items()}
        at |= {"network": "support.networks:small"} if name == "data" else {}
        result = run(config(pictured, threshold=0.1, out=str(tmp_path / f"{name}.parquet"), **at))
        assert result["rows"] == 20
        table = pq.read_table(tmp_path / f"{name}.parquet").sort_by("key")
        found[name] = table["key"].to_pylist(), table["pred"].to_pylist(), table["score"].to_numpy()
    assert found["store"][:2] == found["data"][:2]
    np.testing.assert_allclose(found["store"][2], found["data"][2], rtol=1e-4)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.parquet", "store.parquet"]


def test_images_are_scored_into_an_object_store_whose_place_has_options(
    pictured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_store_in_environment(monkeypatch) as remote:
        out = f"s3://{remote.bucket}/x.parquet?region=us-east-1"
        options = {"data": str(pictured / "images"), "store": None, "network": "support.networks:small", "out": out}
        assert run(config(pictured, threshold=0.1, **options))["rows"] == 20
        left = remote.filesystem().get_file_info(fs.FileSelector(remote.bucket, recursive=True))
        assert [info.path for info in left if info.is_file] == [f"{remote.bucket}/x.parquet"]


def test_images_of_another_network_are_refused_before_any_is_embedded(
    pictured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("images were embedded")

    monkeypatch.setattr("ghost_ray.jobs.extract.job.extract", never)
    options = {"data": str(pictured / "images"), "store": None, "network": "support.networks:other"}
    with pytest.raises(InputError, match=r"support.networks:other \(.*support.networks:small \("):
        run(config(pictured, threshold=0.1, out=str(tmp_path / "s.parquet"), **options))
    assert list(tmp_path.iterdir()) == []


def test_images_are_embedded_with_the_device_options_of_extract(
    pictured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def note(settings: Any, *_: object) -> None:
        seen.append(settings)
        raise InputError("data", "", "seen")

    monkeypatch.setattr("ghost_ray.jobs.extract.plan.make_plan", note)
    device = {"batch_size": 7, "actors": "2:5", "gpus_per_actor": 0.5, "precision": "bf16", "compile": True}
    device |= {"weights": "s3://bucket/w.safetensors", "tf32": True}
    images = {"data": "images", "store": None, "network": "support.networks:small"}
    with pytest.raises(InputError, match="seen"):
        run(config(pictured, threshold=0.1, out=str(tmp_path / "s"), wait_for_nodes="2h", **images, **device))
    assert seen[0].model_dump(include=set(device)) == device
    assert seen[0].wait_for_nodes == 7200.0
    assert set(device) == set(DeviceConfig.model_fields)


def test_device_options_go_with_images_alone() -> None:
    with pytest.raises(InputError, match="`precision` needs `data`"):
        build(ScoreConfig, {"gaussians": "m", "store": "s", "out": "o", "precision": "bf16"})


def test_model_of_a_narrowed_head_scores_images_and_serves(pictured: Path, tmp_path: Path) -> None:
    """Two of the network's four classes: ant is class 3 and bee class 1 of the whole head."""
    import torch
    from PIL import Image

    from ghost_ray import OpenSetClassifier
    from ghost_ray.backbone import load_backbone
    from ghost_ray.config import ExtractConfig, FitConfig
    from ghost_ray.jobs.extract import run as extract
    from ghost_ray.jobs.fit import run as fit

    (tmp_path / "classes.txt").write_text("ant 3\nbee 1\ncat -1\ndog -1\n")
    options = {"data": str(pictured / "images"), "model": "support.networks:small", "restrict": True}
    options |= {"classes": str(tmp_path / "classes.txt"), "out": str(tmp_path / "store")}
    extract(ExtractConfig.model_validate(options))
    fit(FitConfig.model_validate({"store": str(tmp_path / "store"), "out": str(tmp_path / "model")}))
    run(config(tmp_path, threshold=0.1, store=str(tmp_path / "store"), out=str(tmp_path / "a.parquet")))
    images = {"data": str(pictured / "images"), "store": None, "network": "support.networks:small"}
    run(config(tmp_path, **images, out=str(tmp_path / "b.parquet")))
    of_store, of_images = (pq.read_table(tmp_path / f"{name}.parquet").sort_by("key") for name in "ab")
    assert of_store["key"] == of_images["key"]
    assert of_store["pred"] == of_images["pred"]
    np.testing.assert_allclose(of_store["score"].to_numpy(), of_images["score"].to_numpy(), rtol=1e-4)

    assert np.isfinite(of_store["score"].to_numpy()).any()
    whole = load_backbone("support.networks:small", device="cpu")
    for network in ("support.networks:small", whole, whole.restrict([1, 3])):
        classifier = OpenSetClassifier.from_model(str(tmp_path / "model"), network, device="cpu")
        assert classifier.class_names == ["bee", "ant"]
        pictures = [Image.open(pictured / "images" / key).convert("RGB") for key in of_store["key"].to_pylist()]
        with torch.inference_mode():
            prediction, gamma, accepted = classifier(torch.stack([classifier.transform(p) for p in pictures]))
        np.testing.assert_array_equal(prediction, of_store["pred"])
        np.testing.assert_allclose(gamma, of_store["score"], rtol=1e-4)
        np.testing.assert_array_equal(accepted, of_store["accepted"])
    with pytest.raises(InputError, match="head narrowed"):
        OpenSetClassifier.from_model(str(tmp_path / "model"), whole.restrict([3, 1]))
    with pytest.raises(InputError, match="head narrowed"):
        OpenSetClassifier.from_model(str(pictured / "model"), whole.restrict([3, 1]), threshold=0.0)
