"""Extraction against timm by hand, from every kind of source, with rotten images and interrupted runs."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from support.pictures import (
    CLASSES,
    as_flat,
    as_list,
    as_parquet,
    as_webdataset,
    write_folder,
    write_odd_but_good,
    write_rotten,
)
from support.stores import read_row_file
from timm.data import create_transform, resolve_model_data_config

from ghost_ray.cli import main
from ghost_ray.cluster.tasks import threads
from ghost_ray.config import ExtractConfig
from ghost_ray.errors import GateFailed, InputError
from ghost_ray.files import OutputFolder
from ghost_ray.jobs.extract import job
from ghost_ray.jobs.extract import run as extract
from ghost_ray.jobs.extract.plan import make_plan
from ghost_ray.sources import open_source, select
from ghost_ray.store import INDEX, Store

PER_CLASS = 6


def make(out: Path, data: Path, **settings: Any) -> ExtractConfig:
    defaults = {"model": "support.networks:small", "batch_size": 4, **settings}
    return ExtractConfig(data=str(data), out=str(out), **defaults)


def rows_of(uri: Path | str) -> dict[str, tuple[int, int, np.ndarray]]:
    """key → label, prediction, embedding; fails where a key is there twice."""
    store = Store.open(str(uri))
    found: dict[str, tuple[int, int, np.ndarray]] = {}
    for groups in store.row_groups():
        rows, keys = store.read_keyed(groups)
        for key, label, pred, vector in zip(keys.to_pylist(), rows.label, rows.pred, rows.embedding, strict=True):
            assert key not in found
            found[key] = int(label), int(pred), vector
    assert len(found) == store.rows
    return found


def failures_of(uri: Path) -> dict[str, tuple[str, str]]:
    table = pq.read_table(uri / "failures.parquet")
    assert table.schema.names == ["key", "stage", "error"]
    rows = table.to_pylist()
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: (row["stage"], row["error"]) for row in rows}


def weights_of(model: torch.nn.Module, path: Path) -> str:
    save_file(model.state_dict(), path)
    return str(path)


@torch.inference_mode()
def by_hand(model: torch.nn.Module, files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """What anyone gets from timm: embeddings [n, D] and logits [n, K]."""
    model = model.eval()
    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    batch = torch.stack([transform(Image.open(file).convert("RGB")) for file in files])
    embedding = model.forward_head(model.forward_features(batch), pre_logits=True)
    return embedding.numpy(), model(batch).numpy()


def _write_seconds(block: Path) -> float:
    file = pa.ipc.open_file(pa.BufferReader(block.read_bytes()))
    _, metadata = file.get_batch_with_custom_metadata(file.num_record_batches - 1)
    return float(json.loads(metadata["facts"])["seconds"]["write"])


class ByHand(NamedTuple):
    """A network, and what timm itself makes of the pictures with it."""

    name: str
    weights: str
    embedding: np.ndarray  # [n, D]
    logits: np.ndarray  # [n, K]


KINDS: dict[str, Callable[[Path, list[str], Path], dict[str, str]]] = {
    "folder": lambda folder, keys, to: {key: key for key in keys},
    "flat": as_flat,
    "webdataset": as_webdataset,
    "parquet": as_parquet,
    "list": as_list,
}


class TestEqualsTimm:
    architecture = "test_convnext"

    @pytest.fixture(scope="class")
    @classmethod
    def network(
        cls, request: pytest.FixtureRequest, folder: Path, keys: list[str], tmp_path_factory: pytest.TempPathFactory
    ) -> ByHand:
        torch.manual_seed(1)
        name = request.cls.architecture
        model = timm.create_model(name, num_classes=len(CLASSES))
        weights = weights_of(model, tmp_path_factory.mktemp("weights") / "w.safetensors")
        return ByHand(name, weights, *by_hand(model, [folder / key for key in keys]))

    @pytest.mark.parametrize("kind", KINDS)
    def test_rows(self, kind: str, network: ByHand, folder: Path, keys: list[str], tmp_path: Path) -> None:
        data = folder if kind == "folder" else tmp_path / ("list.txt" if kind == "list" else kind)
        names = KINDS[kind](folder, keys, data)
        settings = {"list": {"root": str(folder.parent)}, "flat": {"unknown": True}}.get(kind, {})
        result = extract(make(tmp_path / "store", data, model=network.name, weights=network.weights, **settings))
        found = {names[name]: row for name, row in rows_of(tmp_path / "store").items()}
        assert sorted(found) == keys
        labels = np.array([-1 if kind == "flat" else CLASSES.index(key.split("/")[0]) for key in keys])
        np.testing.assert_array_equal([found[key][0] for key in keys], labels)
        np.testing.assert_array_equal([found[key][1] for key in keys], network.logits.argmax(1))
        vectors = np.stack([found[key][2] for key in keys])
        np.testing.assert_allclose(vectors, network.embedding, atol=1e-5, rtol=1e-5)
        store = Store.open(str(tmp_path / "store"))
        assert store.manifest.data[0].kind == kind
        head = store.head()
        assert head is not None
        np.testing.assert_allclose(head.logits(vectors), network.logits, atol=1e-4)
        accuracy = (network.logits.argmax(1) == labels).mean()
        assert result["accuracy"] == (None if kind == "flat" else pytest.approx(accuracy))


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("kind", ["folder", "webdataset"])  # images to be read, and those that come with a listing
def test_on_ray_the_store_has_the_same_bytes_as_in_threads(
    kind: str, folder: Path, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = folder if kind == "folder" else tmp_path / kind
    KINDS[kind](folder, keys, data)
    extract(make(tmp_path / "ray", data))
    with threads(2), monkeypatch.context() as patched:
        patched.setattr(job, "_needs_ray", lambda config: False)
        extract(make(tmp_path / "threads", data))
    for name in ("head.safetensors", INDEX, *(f"rows/{file.name}" for file in (tmp_path / "ray" / "rows").iterdir())):
        assert (tmp_path / "threads" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes(), name


class TestStore:
    def test_what_the_manifest_says(self, folder: Path, keys: list[str], tmp_path: Path) -> None:
        result = extract(make(tmp_path / "store", folder, model="support.networks:gloomy"))
        manifest = Store.open(str(tmp_path / "store")).manifest
        assert manifest.class_names == list(CLASSES)
        assert manifest.network.weights_sha256
        assert manifest.layout == "clustered"
        assert result["rows"] == manifest.rows == len(keys)
        assert set(result["seconds"]) == {"read", "decode", "embed", "write"}
        assert all(value > 0 for value in result["seconds"].values())
        assert result["notes"] == manifest.notes
        (note,) = manifest.notes
        assert f"the top logit is negative in {len(keys)} of {len(keys)} rows" in note

    def test_the_store_holds_nothing_else(self, folder: Path, tmp_path: Path) -> None:
        assert extract(make(tmp_path / "store", folder))["notes"] == []
        found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
        rows = {f"store/rows/{file.name}" for file in Store.open(str(tmp_path / "store")).files}
        small = {"manifest.json", "head.safetensors", "failures.parquet", "row_groups.safetensors"}
        assert found == {*(f"store/{name}" for name in small), *rows}


class TestOptions:
    @pytest.fixture(scope="class")
    @classmethod
    def expected(cls, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
        out = tmp_path_factory.mktemp("folder") / "store"
        extract(make(out, folder))
        return rows_of(out)

    def test_unknown_labels_everything_so(self, folder: Path, expected: dict[str, Any], tmp_path: Path) -> None:
        result = extract(make(tmp_path / "store", folder, unknown=True))
        found = rows_of(tmp_path / "store")
        assert {label for label, _, _ in found.values()} == {-1}
        assert result["accuracy"] is None
        for key, (_, pred, vector) in found.items():
            assert pred == expected[key][1]
            np.testing.assert_allclose(vector, expected[key][2], atol=1e-6)

    def test_unknowns_are_sampled_by_the_folders_they_are_in(self, folder: Path, tmp_path: Path) -> None:
        extract(make(tmp_path / "store", folder, unknown=True, per_class=2))
        found = rows_of(tmp_path / "store")
        assert {label for label, _, _ in found.values()} == {-1}
        assert Counter(key.split("/")[0] for key in found) == dict.fromkeys(CLASSES, 2)
        chosen = select(open_source(str(folder)).preview.items, per_class=2)["key"].to_pylist()
        assert sorted(found) == sorted(chosen)
        as_flat(folder, chosen, tmp_path / "flat")
        with pytest.raises(InputError, match="`limit` samples all of them"):
            extract(make(tmp_path / "other", tmp_path / "flat", unknown=True, per_class=2))

    def test_per_class_and_restrict(self, folder: Path, expected: dict[str, Any], tmp_path: Path) -> None:
        table = tmp_path / "classes.txt"
        table.write_text("ant 3\nbee 1\ncat -1\ndog -1\n")
        extract(make(tmp_path / "store", folder, per_class=2, classes=str(table), restrict=True))
        found = rows_of(tmp_path / "store")
        store = Store.open(str(tmp_path / "store"))
        assert store.classes == 2
        assert store.manifest.network.restricted_to == [1, 3]
        head = store.head()
        assert head is not None
        assert len(found) == 8
        for key, (label, pred, vector) in found.items():
            assert label == {"ant": 1, "bee": 0}.get(key.split("/")[0], -1)
            assert pred == head.logits(vector[None]).argmax()
            np.testing.assert_allclose(vector, expected[key][2], atol=1e-6)

    def test_unknowns_beside_a_store_whose_head_was_narrowed(
        self, folder: Path, expected: dict[str, Any], tmp_path: Path
    ) -> None:
        table = tmp_path / "classes.txt"
        table.write_text("ant 3\nbee 1\ncat -1\ndog -1\n")
        extract(make(tmp_path / "store", folder, classes=str(table), restrict=True))
        narrowed = str(tmp_path / "store")
        extract(make(tmp_path / "unknown", folder, unknown=True, restrict_like=narrowed))
        store, unknown = Store.open(narrowed), Store.open(str(tmp_path / "unknown"))
        assert unknown.manifest.network == store.manifest.network
        known = {key: pred for key, (_, pred, _) in rows_of(tmp_path / "store").items()}
        assert known == {key: pred for key, (_, pred, _) in rows_of(tmp_path / "unknown").items()}
        assert {label for label, _, _ in rows_of(tmp_path / "unknown").values()} == {-1}

        every = make(tmp_path / "test", folder, restrict_like=narrowed)
        with pytest.raises(InputError, match="class 0 of the whole head, which was not kept"):
            extract(every)
        with pytest.raises(ValueError, match="cannot be used together"):
            make(tmp_path / "test", folder, restrict=True, restrict_like=narrowed)


class TestRottenImages:
    @pytest.fixture
    def data(self, tmp_path: Path) -> Path:
        data = tmp_path / "data"
        data.mkdir()
        return data

    def test_exact_failures(self, data: Path, tmp_path: Path) -> None:
        good = write_odd_but_good(data)
        rotten = write_rotten(data)
        Image.new("RGB", (40, 40), "white").save(data / "white.png")
        words = ["extract", "--data", str(data), "--model", "support.networks:allergic_to_white", "--unknown"]
        words += ["--out", str(tmp_path / "store")]
        with pytest.raises(SystemExit) as refused:
            main([*words, "--max-failures", "0.5"])
        assert refused.value.code == 1
        with pytest.raises(SystemExit) as done:
            main([*words, "--max-failures", "0.6"])
        assert done.value.code == 0
        failures = failures_of(tmp_path / "store")
        assert {key: stage for key, (stage, _) in failures.items()} == {**rotten, "white.png": "embed"}
        assert all(error and "\n" not in error for _, error in failures.values())
        assert "bomb" in failures["bomb.png"][1]
        assert sorted(rows_of(tmp_path / "store")) == sorted(good)
        assert Store.open(str(tmp_path / "store")).manifest.failures == len(rotten) + 1

    def test_odd_pictures_are_decoded_as_timm_does(self, data: Path, tmp_path: Path) -> None:
        good = sorted(write_odd_but_good(data))
        torch.manual_seed(1)
        model = timm.create_model("test_vit", num_classes=3)
        weights = weights_of(model, tmp_path / "w.safetensors")
        extract(make(tmp_path / "store", data, model="test_vit", weights=weights, unknown=True))
        found = rows_of(tmp_path / "store")
        expected, _ = by_hand(model, [data / name for name in good])
        np.testing.assert_allclose(np.stack([found[name][2] for name in good]), expected, atol=1e-5, rtol=1e-5)

    def test_beyond_the_budget(self, folder: Path, keys: list[str], tmp_path: Path) -> None:
        data = tmp_path / "data"
        write_folder(data, PER_CLASS)
        for name in ("a.jpg", "b.jpg"):
            (data / "ant" / name).write_text("no picture")
        with pytest.raises(
            GateFailed, match=r"2 of 26 images failed.*`max_failures=0\.05`.*ant/a\.jpg \(decode"
        ) as said:
            extract(make(tmp_path / "store", data, max_failures=0.05))
        assert said.value.exit_code == 1
        assert not (tmp_path / "store").exists()
        assert set(failures_of(tmp_path / ".store.partial")) == {"ant/a.jpg", "ant/b.jpg"}
        # Nothing was lost: with a larger budget only the commit is left to do.
        result = extract(make(tmp_path / "store", data, max_failures=0.1))
        assert (result["rows"], result["failures"], result["images_per_second"]) == (24, 2, None)
        assert sorted(rows_of(tmp_path / "store")) == keys

    def test_what_could_not_be_read_is_tried_again(self, tmp_path: Path) -> None:
        data = tmp_path / "data"
        keys = write_folder(data, 2)
        missing = data / keys[0]
        content = missing.read_bytes()
        missing.unlink()
        missing.symlink_to(tmp_path / "elsewhere.jpg")
        config = make(tmp_path / "store", data, max_failures=0)
        with pytest.raises(GateFailed, match="read: does not exist"):
            extract(config)
        staging = Path(OutputFolder(config.out, resume=True).staging)
        # The listing sees a broken link without a size; so that the data are the same, it is told what it will see.
        (tmp_path / "elsewhere.jpg").write_bytes(content)
        settings = json.loads((staging / "settings.json").read_text())
        fingerprint = make_plan(config).data.fingerprint
        (staging / "settings.json").write_text(json.dumps({**settings, "data fingerprint": fingerprint}))
        shutil.rmtree(staging / "listings")
        extract(config)
        assert sorted(rows_of(tmp_path / "store")) == sorted(keys)
        assert failures_of(tmp_path / "store") == {}


class TestRefusedBeforeRay:
    """Nothing of this needs a cluster; none is started."""

    def refused(self, tmp_path: Path, data: Path, **settings: Any) -> str:
        with pytest.raises(InputError) as error:
            extract(make(tmp_path / "store", data, **settings))
        assert error.value.exit_code == 2
        return str(error.value)

    def test_label_that_fits_no_class(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "data" / "eel").mkdir(parents=True)
        Image.new("RGB", (40, 40)).save(tmp_path / "data" / "eel" / "1.jpg")
        assert "'eel' fits no class" in self.refused(tmp_path, tmp_path / "data")

    def test_an_unfinished_run_of_another_version(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / ".store.partial" / "checkpoint").mkdir(parents=True)
        (tmp_path / ".store.partial" / "settings.json").write_text('{"model": "support.networks:small"}')
        assert "unfinished run of another ghost_ray version" in self.refused(tmp_path, folder)

    def test_no_such_data(self, tmp_path: Path) -> None:
        assert "does not exist" in self.refused(tmp_path, tmp_path / "nothing")

    def test_no_such_network(self, folder: Path, tmp_path: Path) -> None:
        assert "nearest: 'resnet50'" in self.refused(tmp_path, folder, model="resnet5O")

    def test_existing_result(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "store").mkdir()
        (tmp_path / "store" / "mine.txt").write_text("keep me")
        assert "is not a finished ghost_ray result" in self.refused(tmp_path, folder)


class TestGoingOn:
    def test_other_settings_are_refused_and_named(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(GateFailed):
            self.leave_unfinished(folder, tmp_path)
        with pytest.raises(
            InputError, match=r"`seed` was 0, is 5; `limit`|`limit` was not given, is 3; `seed` was 0, is 5"
        ):
            extract(make(tmp_path / "store", tmp_path / "data", limit=3, seed=5))
        result = extract(make(tmp_path / "store", tmp_path / "data", limit=3, seed=5, overwrite=True, max_failures=1.0))
        assert result["rows"] + result["failures"] == 3

    def leave_unfinished(self, folder: Path, tmp_path: Path) -> None:
        write_folder(tmp_path / "data", 2)
        (tmp_path / "data" / "ant" / "x.jpg").write_text("no picture")
        extract(make(tmp_path / "store", tmp_path / "data", max_failures=0))

    def test_changed_data_is_named(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(GateFailed):
            self.leave_unfinished(folder, tmp_path)
        (tmp_path / "data" / "ant" / "x.jpg").unlink()
        with pytest.raises(InputError, match="data fingerprint was"):
            extract(make(tmp_path / "store", tmp_path / "data"))

    def test_a_result_that_was_not_yet_published(
        self, folder: Path, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(OutputFolder, "publish", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                extract(make(tmp_path / "store", folder))
        assert extract(make(tmp_path / "store", folder))["images_per_second"] is None
        assert sorted(rows_of(tmp_path / "store")) == keys

    def test_a_block_cut_short_is_computed_again(self, folder: Path, keys: list[str], tmp_path: Path) -> None:
        data = tmp_path / "data"
        keys = [*write_folder(data, 8), "ant/x.jpg"]
        (data / "ant" / "x.jpg").write_text("no picture")
        with pytest.raises(GateFailed):
            extract(make(tmp_path / "store", data, max_failures=0))
        blocks = sorted((tmp_path / ".store.partial" / "blocks").glob("*.arrow"))
        assert len(blocks) > 2
        blocks[0].write_bytes(blocks[0].read_bytes()[:100])
        lost = read_row_file(blocks[1])["key"].to_pylist()
        blocks[1].unlink()
        assert lost
        kept = sum(_write_seconds(block) for block in blocks[2:])
        result = extract(make(tmp_path / "store", data, max_failures=0.5, batch_size=2))  # which may differ
        assert result["images_per_second"] is not None
        assert result["seconds"]["write"] > round(kept, 3)  # of both runs
        assert Store.open(str(tmp_path / "store")).manifest.batch_size == 2
        assert sorted([*rows_of(tmp_path / "store"), *failures_of(tmp_path / "store")]) == sorted(keys)
