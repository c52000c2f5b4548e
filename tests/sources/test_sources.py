"""Sources: what holds for every kind, locally and on an object store, and what is refused."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.object_stores import ObjectStore
from support.raw_sources import (
    PLACES,
    WNIDS,
    content,
    images_of,
    labelled_bytes,
    refusal,
    tar_members,
    write_folder,
    write_list,
    write_parquet,
    write_tar,
)

from ghost_ray.files import resolve
from ghost_ray.sources import make_items, open_source
from ghost_ray.sources.source import safe_key


def test_every_kind_gives_the_same_labelled_images(tmp_path: Path) -> None:
    images = images_of(11)
    folder = write_folder(tmp_path / "folder", images)
    for kind in ("tars", "tables"):
        (tmp_path / kind).mkdir()
    for shard, some in enumerate((images[:4], images[4:])):
        write_tar(tmp_path / "tars" / f"{shard:03d}.tar", tar_members(some))
        write_parquet(tmp_path / "tables" / f"{shard:03d}.parquet", some)
    image_list, root = write_list(tmp_path / "val.txt", folder, images)

    sources = {
        "folder": open_source(folder),
        "webdataset": open_source(str(tmp_path / "tars")),
        "parquet": open_source(str(tmp_path / "tables")),
        "list": open_source(image_list, root=root),
    }
    expected = {(PLACES[WNIDS.index(label)], data) for label, _, data in images}
    assert len(expected) == 11
    for kind, source in sources.items():
        assert source.kind == kind
        assert source.preview.items.num_rows == 11
        assert not source.preview.failures
        assert labelled_bytes(source) == expected, kind


def test_a_single_shard_is_a_source(tmp_path: Path) -> None:
    images = images_of(4)
    tar = open_source(write_tar(tmp_path / "a.tar", tar_members(images)))
    assert tar.preview.items["key"].to_pylist() == [f"a.tar/{name}" for _, name, _ in images]
    table = open_source(write_parquet(tmp_path / "a.parquet", images))
    assert table.preview.items["key"].to_pylist() == [f"a.parquet/{row:08d}" for row in range(4)]


def test_fingerprint_names_the_data_not_the_place(tmp_path: Path) -> None:
    first = open_source(write_folder(tmp_path / "here", images_of(5))).fingerprint
    elsewhere = write_folder(tmp_path / "there", list(reversed(images_of(5))))
    os.utime(Path(elsewhere) / WNIDS[0] / "0000.png", (1, 1))
    assert open_source(elsewhere).fingerprint == first
    (Path(elsewhere) / WNIDS[0] / "0000.png").write_bytes(b"longer or shorter")
    assert open_source(elsewhere).fingerprint != first


def test_sources_travel_to_other_processes(tmp_path: Path) -> None:
    source = open_source(write_tar(tmp_path / "a.tar", tar_members(images_of(3))))
    assert content(pickle.loads(pickle.dumps(source))) == content(source)


def test_whoever_reads_images_imports_no_network() -> None:
    code = "import sys, ghost_ray.sources; print(sorted({'ray', 'timm', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_reading_a_few_items_of_many_shards(tmp_path: Path) -> None:
    images = images_of(20)
    for kind, write in (("tar", lambda p, i: write_tar(p, tar_members(i))), ("parquet", write_parquet)):
        (tmp_path / kind).mkdir()
        for shard in range(2):
            write(tmp_path / kind / f"{shard}.{kind}", images[shard * 10 : shard * 10 + 10])
        source = open_source(str(tmp_path / kind))
        chosen = source.preview.items.take([1, 4, 5, 9, 12, 19])
        assert [image.data for image in source.reader.read(chosen)] == [
            images[place][2] for place in (1, 4, 5, 9, 12, 19)
        ]


def test_refusals_of_what_is_no_source(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "is empty" in refusal(tmp_path / "empty")
    (tmp_path / "empty" / "notes.md").write_text("hello")
    assert "no image among 1 files" in refusal(tmp_path / "empty")
    assert "nearest: 'parquet'" in refusal(tmp_path, format="parket")
    (tmp_path / "shard.tar.gz").write_bytes(b"")
    assert "compressed tar" in refusal(tmp_path / "shard.tar.gz")
    write_folder(tmp_path / "mixed", images_of(1))
    write_tar(tmp_path / "mixed" / "a.tar", tar_members(images_of(1)))
    assert "more than one format: folder, webdataset" in refusal(tmp_path / "mixed")
    assert open_source(str(tmp_path / "mixed"), format="webdataset").preview.items.num_rows == 1
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    assert "has no image column" in refusal(tmp_path / "other.parquet")
    assert "root " in refusal(tmp_path / "mixed", format="folder", root="/")


def test_repeated_keys_are_refused(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("a.png 0\n./a.png 1\n")
    assert "'a.png' more than once" in refusal(tmp_path / "list.txt")
    write_tar(tmp_path / "a.tar", [("a.png", b"1"), ("a.png", b"2")])
    assert "'a.tar/a.png' more than once" in refusal(tmp_path / "a.tar")


@settings(deadline=None)
@given(st.text(max_size=30))
def test_keys_stay_inside_and_on_one_line(name: str) -> None:
    key = safe_key(name)
    assert key.isprintable()
    assert not key.startswith("/")
    assert ".." not in key.split("/")
    assert safe_key(key) == key


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = ObjectStore()
    yield store
    store.close()


@pytest.mark.parametrize("period", [0, 25])
def test_every_kind_on_an_object_store(tmp_path: Path, store: ObjectStore, period: int) -> None:
    images = images_of(40)
    folder = write_folder(tmp_path / "folder", images)
    (tmp_path / "tars").mkdir()
    (tmp_path / "tables").mkdir()
    for shard in range(2):
        some = images[shard * 20 : shard * 20 + 20]
        write_tar(tmp_path / "tars" / f"{shard}.tar", tar_members(some))
        write_parquet(tmp_path / "tables" / f"{shard}.parquet", some)
    write_list(tmp_path / "val.txt", folder, images)

    bucket = f"bucket{period}"
    store.period = 0
    remote, _ = resolve(store.uri(bucket) + "&allow_bucket_creation=true")
    remote.create_dir(bucket)
    pa.fs.copy_files(str(tmp_path), bucket, destination_filesystem=remote)
    store.period = period
    before = store.requests
    for name in ("folder", "tars", "tables", "val.txt"):
        root = store.uri(f"{bucket}/folder") if name == "val.txt" else None
        local_root = folder if name == "val.txt" else None
        found = open_source(store.uri(f"{bucket}/{name}"), root=root)
        local = open_source(str(tmp_path / name), root=local_root)
        assert not found.preview.failures
        assert found.preview.items.equals(local.preview.items)
        assert found.fingerprint == local.fingerprint
        assert content(found) == content(local)
        assert "password" not in found.uri
    assert store.requests > before
    store.period = 0
    assert [image.error for image in found.reader.read(make_items(["x"], ["x"], [None]))] == ["does not exist"]
