"""Sources: what is listed, what is read, what is refused."""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import tarfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PILImage

from ghost_ray.errors import InputError
from ghost_ray.files import resolve
from ghost_ray.sources import (
    DecodeError,
    Source,
    decode,
    load_classes,
    map_labels,
    open_source,
    select,
    tars,
)
from ghost_ray.sources.base import make_items, safe_key

WNIDS = ["n01440764", "n02099601", "n03888257"]  # tench, golden retriever, parachute
PLACES = [0, 207, 701]


def picture(number: int, mode: str = "RGB", format: str = "PNG", **options: object) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    PILImage.fromarray(pixels).convert(mode).save(buffer, format, **options)
    return buffer.getvalue()


def images_of(count: int = 7, names: list[str] = WNIDS) -> list[tuple[str, str, bytes]]:
    return [(names[i % len(names)], f"{i:04d}.png", picture(i)) for i in range(count)]


def write_folder(root: Path, images: list[tuple[str, str, bytes]]) -> str:
    for label, name, data in images:
        (root / label).mkdir(parents=True, exist_ok=True)
        (root / label / name).write_bytes(data)
    return str(root)


def write_tar(path: Path, members: list[tuple[str, bytes]], format: int = tarfile.GNU_FORMAT) -> str:
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return str(path)


def tar_members(images: list[tuple[str, str, bytes]]) -> list[tuple[str, bytes]]:
    members = []
    for label, name, data in images:
        members += [(name, data), (name.replace(".png", ".cls"), str(PLACES[WNIDS.index(label)]).encode())]
    return members


def write_parquet(path: Path, images: list[tuple[str, str, bytes]], row_group_size: int = 3) -> str:
    table = pa.table(
        {
            "image": [{"bytes": data, "path": name} for _, name, data in images],
            "label": pa.array([PLACES[WNIDS.index(label)] for label, _, _ in images], pa.int64()),
        }
    )
    pq.write_table(table, path, row_group_size=row_group_size)
    return str(path)


def write_list(path: Path, root: str, images: list[tuple[str, str, bytes]]) -> tuple[str, str]:
    path.write_text("".join(f"{label}/{name} {PLACES[WNIDS.index(label)]}\n" for label, name, _ in images))
    return str(path), root


def content(source: Source) -> dict[str, bytes | None]:
    return {image.key: image.data for image in source.reader.read(source.items)}


def labelled_bytes(source: Source, classes: int = 1000) -> set[tuple[int, bytes]]:
    labels = map_labels(source, classes).apply(source.items["label"])
    by_key = content(source)
    return {(int(label), by_key[key]) for key, label in zip(source.items["key"].to_pylist(), labels, strict=True)}


# --- the five kinds -----------------------------------------------------------------------------------------


def test_every_kind_gives_the_same_labelled_images(tmp_path: Path) -> None:
    images = images_of(11)
    folder = write_folder(tmp_path / "folder", images)
    for kind in ("tars", "tables"):
        (tmp_path / kind).mkdir()
    for shard, part in enumerate((images[:4], images[4:])):
        write_tar(tmp_path / "tars" / f"{shard:03d}.tar", tar_members(part))
        write_parquet(tmp_path / "tables" / f"{shard:03d}.parquet", part)
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
        assert source.items.num_rows == 11
        assert not source.failures
        assert labelled_bytes(source) == expected, kind


def test_a_single_shard_is_a_source(tmp_path: Path) -> None:
    images = images_of(4)
    tar = open_source(write_tar(tmp_path / "a.tar", tar_members(images)))
    assert tar.items["key"].to_pylist() == [f"a.tar/{name}" for _, name, _ in images]
    table = open_source(write_parquet(tmp_path / "a.parquet", images))
    assert table.items["key"].to_pylist() == [f"a.parquet/{row:08d}" for row in range(4)]


def test_folder_keys_labels_and_what_is_ignored(tmp_path: Path) -> None:
    write_folder(tmp_path, [("cat", "b.JPG", b"x"), ("cat", "a.png", b"xy"), ("ant", "deep/c.webp", b"")][:2])
    (tmp_path / "ant" / "deep").mkdir(parents=True)
    (tmp_path / "ant" / "deep" / "c.webp").write_bytes(b"")
    (tmp_path / "bee").mkdir()
    (tmp_path / ".cache").mkdir()
    for name in ("cat/notes.txt", "cat/._a.png", ".cache/a.png"):
        (tmp_path / name).write_bytes(b"?")
    source = open_source(str(tmp_path))
    assert source.items.select(["key", "label", "size"]).to_pylist() == [
        {"key": "ant/deep/c.webp", "label": "ant", "size": 0},
        {"key": "cat/a.png", "label": "cat", "size": 2},
        {"key": "cat/b.JPG", "label": "cat", "size": 1},
    ]
    assert source.class_names == ["ant", "bee", "cat"]  # a class without images keeps its place
    assert source.label_values == ["ant", "cat"]
    assert map_labels(source, 3).index == {"ant": 0, "bee": 1, "cat": 2}
    assert source.ignored == 3


def test_flat_folder_has_no_labels(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(picture(number))
    source = open_source(str(tmp_path))
    assert source.kind == "flat"
    assert source.items["label"].null_count == 3
    with pytest.raises(InputError, match=r"has no labels.*--unknown"):
        map_labels(source, 10)


def test_flat_may_be_asked_for(tmp_path: Path) -> None:
    source = open_source(write_folder(tmp_path, images_of(3)), format="flat")
    assert source.kind == "flat"
    assert source.items["label"].null_count == source.items.num_rows == 3


@pytest.mark.parametrize("use_pyarrow", [False, True])
def test_listing_is_the_same_through_any_file_system(tmp_path: Path, use_pyarrow: bool, monkeypatch) -> None:
    root = write_folder(tmp_path / "data", images_of(9))
    plain = open_source(root)
    if use_pyarrow:
        remote = pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem())
        monkeypatch.setattr("ghost_ray.sources.opening.resolve", lambda uri, field: (remote, "data"))
    source = open_source(root)
    assert source.items.equals(plain.items)
    assert source.fingerprint == plain.fingerprint
    assert source.class_names == plain.class_names
    assert content(source) == content(plain)


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


def test_reading_a_few_items_of_many_shards(tmp_path: Path) -> None:
    images = images_of(20)
    for kind, write in (("tar", lambda p, i: write_tar(p, tar_members(i))), ("parquet", write_parquet)):
        (tmp_path / kind).mkdir()
        for shard in range(2):
            write(tmp_path / kind / f"{shard}.{kind}", images[shard * 10 : shard * 10 + 10])
        source = open_source(str(tmp_path / kind))
        chosen = source.items.take([1, 4, 5, 9, 12, 19])
        assert [image.data for image in source.reader.read(chosen)] == [
            images[place][2] for place in (1, 4, 5, 9, 12, 19)
        ]


# --- what is broken -----------------------------------------------------------------------------------------


def test_unreadable_files_become_errors_of_their_key(tmp_path: Path) -> None:
    root = Path(write_folder(tmp_path, images_of(3)))
    (root / WNIDS[0] / "broken.png").symlink_to(root / "nowhere")
    (root / WNIDS[0] / "loop").symlink_to(root / WNIDS[0])
    os.mkfifo(root / WNIDS[0] / "pipe.png")
    source = open_source(str(root))
    images = {image.key: image for image in source.reader.read(source.items)}
    assert images[f"{WNIDS[0]}/broken.png"].error == "does not exist"
    assert sum(image.error is None for image in images.values()) == 3 + 1  # the linked folder is listed once
    assert [(failure.key, failure.stage) for failure in source.failures if "loop" not in failure.key] == [
        (f"{WNIDS[0]}/pipe.png", "list")
    ]


def test_names_that_are_not_utf8_are_told(tmp_path: Path) -> None:
    write_folder(tmp_path, images_of(1))
    with open(os.fsencode(tmp_path) + b"/" + WNIDS[0].encode() + b"/\xff.png", "wb") as handle:
        handle.write(picture(1))
    source = open_source(str(tmp_path))
    assert source.items.num_rows == 1
    assert [failure.error for failure in source.failures] == ["the file's name is not UTF-8"]


def test_a_name_with_a_newline_has_a_key_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "a\nb.png").write_bytes(picture(0))
    source = open_source(str(tmp_path))
    assert content(source) == {"a%0Ab.png": picture(0)}


@pytest.mark.parametrize("cut", ["in an image", "in a header", "before the end mark"])
def test_a_truncated_tar_gives_the_rows_before_and_one_failure(tmp_path: Path, cut: str) -> None:
    path = Path(write_tar(tmp_path / "a.tar", tar_members(images_of(6))))
    whole = open_source(str(path)).items
    start = whole["start"][4].as_py()
    end = {"in an image": start + 5, "in a header": start - 300, "before the end mark": start - 512}[cut]
    path.write_bytes(path.read_bytes()[:end])
    source = open_source(str(path))
    assert source.items.equals(whole.slice(0, 4))
    assert [failure.stage for failure in source.failures] == ["read"]
    assert source.failures[0].key == ("a.tar/0004.png" if cut == "in an image" else "a.tar")
    assert all(image.error is None for image in source.reader.read(source.items))


def test_a_rotten_header_costs_one_member(tmp_path: Path) -> None:
    path = Path(write_tar(tmp_path / "a.tar", tar_members(images_of(5))))
    whole = open_source(str(path)).items
    data = bytearray(path.read_bytes())
    header = whole["start"][2].as_py() - 512
    data[header : header + 100] = b"\xee" * 100
    path.write_bytes(data)
    source = open_source(str(path))
    assert source.items["key"].to_pylist() == [f"a.tar/{n:04d}.png" for n in (0, 1, 3, 4)]
    assert source.label_values == sorted({str(PLACES[n % 3]) for n in (0, 1, 3, 4)})
    assert [failure.key for failure in source.failures] == [f"a.tar/@{header}"]


def test_a_tar_that_shrinks_after_listing(tmp_path: Path) -> None:
    path = Path(write_tar(tmp_path / "a.tar", tar_members(images_of(3))))
    source = open_source(str(path))
    path.write_bytes(path.read_bytes()[: source.items["start"][2].as_py() + 3])
    errors = [image.error for image in source.reader.read(source.items)]
    assert errors == [None, None, "the tar ends inside this member"]
    path.unlink()
    assert [image.error for image in source.reader.read(source.items)] == ["does not exist"] * 3


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_wild_tar_names_are_only_keys(tmp_path: Path, format: int) -> None:
    long = "deep/" * 40 + "ü" * 30 + ".png"
    names = [long, "../../etc/escape.png", "/root.png", "a\nb.png", "./dotted.png"]
    path = write_tar(tmp_path / "a.tar", [(name, picture(i)) for i, name in enumerate(names)], format)
    expected = [f"a.tar/{name}" for name in (long, "etc/escape.png", "root.png", "a%0Ab.png", "dotted.png")]
    source = open_source(path)
    assert source.items["key"].to_pylist() == expected
    assert list(content(source).values()) == [picture(i) for i in range(5)]


def test_tar_labels_from_cls_and_json(tmp_path: Path) -> None:
    members = [
        ("a.cls", b"3\n"),
        ("a.jpg", b"x"),
        ("a.json", b'{"label": 4}'),
        ("b.jpg", b"x"),
        ("b.json", json.dumps({"width": 3, "cls": 5}).encode()),
        ("c.jpg", b"x"),
        ("c.json", b"6"),
        ("d.jpg", b"x"),
        ("d.json", b"{rotten"),
        ("e.txt", b"no image"),
    ]
    source = open_source(write_tar(tmp_path / "a.tar", members))
    assert source.items["label"].to_pylist() == ["3", "5", "6", None]
    with pytest.raises(InputError, match=r"1 images without a label, first 'a\.tar/d\.jpg'"):
        map_labels(source, 10)


def test_scanning_a_tar_reads_no_image(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.jpg", b"x" * (8 << 20)), ("a.cls", b"1"), ("b.jpg", b"y" * (8 << 20))])

    class Counted(pa.fs.LocalFileSystem):
        read = 0

        def open_input_file(self, path: str) -> object:
            handle = pa.fs.LocalFileSystem().open_input_file(path)
            outer = self

            class Handle:
                def size(self) -> int:
                    return handle.size()

                def read_at(self, count: int, offset: int) -> bytes:
                    outer.read += count
                    return handle.read_at(count, offset)

                def __enter__(self) -> Handle:
                    return self

                def __exit__(self, *_: object) -> None:
                    handle.close()

            return Handle()

    counted = Counted()
    scan = tars.scan(counted, str(tmp_path), Path(path).name)  # type: ignore[arg-type]
    assert scan.items.num_rows == 2
    assert 0 < counted.read < 1 << 20


def test_a_broken_row_group_costs_no_other(tmp_path: Path) -> None:
    images = images_of(9)
    path = Path(write_parquet(tmp_path / "a.parquet", images, row_group_size=3))
    source = open_source(str(path))
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + 40] = b"\xff" * 40
    path.write_bytes(data)
    found = list(source.reader.read(source.items))
    assert [image.error is None for image in found] == [True] * 3 + [False] * 3 + [True] * 3
    assert len({image.key for image in found}) == 9


def test_parquet_rows_without_bytes(tmp_path: Path) -> None:
    rows = [{"bytes": b"x", "path": None}, {"bytes": None, "path": "far/away.jpg"}, None]
    pq.write_table(pa.table({"img": rows, "label": [0, 1, 2]}), tmp_path / "a.parquet")
    source = open_source(str(tmp_path))
    assert [image.error for image in source.reader.read(source.items)] == [None] + ["the row holds no image bytes"] * 2


def test_a_rotten_shard_is_a_failure_of_its_own(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", images_of(3))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 this is not one")
    source = open_source(str(tmp_path))
    assert source.items.num_rows == 3
    assert [(failure.key, failure.stage) for failure in source.failures] == [("b.parquet", "read")]


# --- what is refused ----------------------------------------------------------------------------------------


def refusal(uri: object, **options: str) -> str:
    with pytest.raises(InputError) as caught:
        open_source(str(uri), **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


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
    assert "more than one kind: images, webdataset" in refusal(tmp_path / "mixed")
    assert open_source(str(tmp_path / "mixed"), format="webdataset").items.num_rows == 1
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    assert "has no image column" in refusal(tmp_path / "other.parquet")
    assert "--root" in refusal(tmp_path / "mixed", format="folder", root="/")


@pytest.mark.parametrize("line", ["../up.png 1", "/etc/passwd 1", "a/../../b.png 0", "a\x07.png 1"])
def test_a_list_line_may_not_leave_its_root(tmp_path: Path, line: str) -> None:
    (tmp_path / "list.txt").write_text(f"good.png 0\n{line}\n")
    assert "line 2" in refusal(tmp_path / "list.txt")


def test_list_lines(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("./b c.png 3\r\n\n a.png\t-1\nd e.jpg\n")
    source = open_source(str(tmp_path / "list.txt"))
    rows = dict(zip(source.items["key"].to_pylist(), source.items["label"].to_pylist(), strict=True))
    assert rows == {"a.png": "-1", "b c.png": "3", "d e.jpg": None}


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


# --- labels -------------------------------------------------------------------------------------------------


def source_with(labels: list[str | None], kind: str = "folder", class_names: list[str] | None = None) -> Source:
    keys = [f"{i}.png" for i in range(len(labels))]
    names = class_names or (sorted({x for x in labels if x}) if kind == "folder" else None)
    return Source("data", kind, make_items(keys, keys, labels), None, "", names)  # type: ignore[arg-type]


def test_wnids_go_to_their_place_in_timms_table() -> None:
    found = map_labels(source_with(WNIDS), 1000)
    assert [found.index[wnid] for wnid in WNIDS] == PLACES
    assert found.rule == "wnid"
    assert found.class_names is not None
    assert found.class_names[207] == "golden retriever"
    assert len(found.class_names) == 1000
    assert map_labels(source_with(WNIDS), 21841).index != found.index
    with pytest.raises(InputError, match="'n00000001' fits no class of the head"):
        map_labels(source_with([*WNIDS, "n00000001"]), 1000)


def test_wnids_of_a_small_head_go_by_order() -> None:
    assert map_labels(source_with(WNIDS), 3).index == dict(zip(WNIDS, range(3), strict=True))


def test_names_go_by_sorted_order_only_where_the_count_fits() -> None:
    found = map_labels(source_with(["b", "a", "c", "a"]), 3)
    assert found.apply(pa.array(["b", "a", None, "c"])).tolist() == [1, 0, -1, 2]
    assert found.class_names == ["a", "b", "c"]
    assert not found.notes
    with pytest.raises(InputError, match=r"'a' fits no class .* 3 names and the head has 4"):
        map_labels(source_with(["b", "a", "c"]), 4)


def test_text_order_that_is_not_number_order_is_told() -> None:
    names = [f"class{i}" for i in range(12)]
    found = map_labels(source_with(names), 12)
    assert found.index["class10"] == 2
    assert "--classes" in found.notes[0]


def test_integers_are_indices_except_as_folder_names() -> None:
    found = map_labels(source_with(["7", "0", "-1"], "parquet"), 8)
    assert found.index == {"7": 7, "0": 0, "-1": -1}
    assert found.present() == [0, 7]
    with pytest.raises(InputError, match="'8' fits no class"):
        map_labels(source_with(["8"], "parquet"), 8)
    with pytest.raises(InputError, match="'-2' fits no class"):
        map_labels(source_with(["-2"], "list"), 8)
    with pytest.raises(InputError, match="2 names and the head has 8"):
        map_labels(source_with(["0", "7"]), 8)


def test_explicit_classes() -> None:
    found = map_labels(source_with(["cat", "dog"]), 4, {"dog": 3, "cat": 1, "cow": 0})
    assert found.index == {"cat": 1, "dog": 3}
    assert found.class_names == ["cow", "cat", "2", "dog"]
    with pytest.raises(InputError, match=r"'dgo' fits no class.*nearest: 'dog'"):
        map_labels(source_with(["dgo"]), 4, {"dog": 3})
    with pytest.raises(InputError, match="index 4"):
        map_labels(source_with(["dog"]), 4, {"dog": 4})


def test_restricted_numbers_the_present_classes() -> None:
    found = map_labels(source_with(["cat", "dog"]), 9, {"dog": 7, "cat": 2}).restricted()
    assert found.index == {"cat": 0, "dog": 1}
    assert found.class_names == ["cat", "dog"]


def test_class_names_from_hugging_face_metadata(tmp_path: Path) -> None:
    features = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    table = pa.table({"image": [{"bytes": b"", "path": ""}], "label": [1]})
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)}), tmp_path / "a.parquet")
    found = map_labels(open_source(str(tmp_path)), 2)
    assert (found.index, found.class_names) == ({"1": 1}, ["cat", "dog"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"cat": 0, "big dog": 1}'),
        ("a.json", '["cat", "big dog"]'),
        ("a.yaml", "cat: 0\nbig dog: 1\n"),
        ("a.txt", "cat 0\nbig dog\t1\n"),
        ("a.txt", "cat\nbig dog\n"),
        ("a.csv", "cat,0\nbig dog,1\n"),
    ],
)
def test_classes_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert load_classes(str(tmp_path / name)) == {"cat": 0, "big dog": 1}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{"),
        ("a.json", "3"),
        ("a.json", '{"a": "b"}'),
        ("a.txt", "a 0\na 1\n"),
        ("a.yaml", "a: [1"),
        ("b", ""),
    ],
)
def test_classes_files_that_are_wrong(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match="--classes"):
        load_classes(str(tmp_path / name))
    with pytest.raises(InputError, match="--classes"):
        load_classes(str(tmp_path / "nowhere.json"))


# --- selection ----------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 5), st.integers(0, 3), st.randoms())
def test_selection(count: int, limit: int, per_class: int, seed: int, random) -> None:
    rows = [(f"{i}.png", "abc"[i % 3] if i % 7 else None) for i in range(count)]
    items = make_items([k for k, _ in rows], [k for k, _ in rows], [c for _, c in rows])
    random.shuffle(rows)
    shuffled = make_items([k for k, _ in rows], [k for k, _ in rows], [c for _, c in rows])
    chosen = select(items, limit, None, seed)["key"].to_pylist()
    assert chosen == [key for key in items["key"].to_pylist() if key in set(chosen)]
    assert len(chosen) == min(limit, count)
    assert set(chosen) == set(select(shuffled, limit, None, seed)["key"].to_pylist())
    assert set(chosen) <= set(select(items, limit + 3, None, seed)["key"].to_pylist())
    by_class = select(items, None, per_class, seed)
    labels = [label for _, label in rows]
    for label in set(labels):
        assert by_class["label"].to_pylist().count(label) == min(per_class, labels.count(label))
    assert set(by_class["key"].to_pylist()) == set(select(shuffled, None, per_class, seed)["key"].to_pylist())
    assert select(items, limit, per_class, seed).num_rows == min(limit, by_class.num_rows)


def test_seeds_choose_differently() -> None:
    keys = [f"{i}.png" for i in range(1000)]
    items = make_items(keys, keys, [None] * 1000)
    first, second = (set(select(items, 100, seed=seed)["key"].to_pylist()) for seed in (0, 1))
    assert len(first & second) < 30


# --- decoding -----------------------------------------------------------------------------------------------


def timm_decode(data: bytes, tmp_path: Path) -> np.ndarray:
    from timm.data import ImageDataset

    (tmp_path / "class").mkdir(exist_ok=True)
    (tmp_path / "class" / "one.png").write_bytes(data)  # the name's ending does not matter to Pillow
    return np.asarray(ImageDataset(str(tmp_path))[0][0])


def exif_rotated() -> bytes:
    exif = PILImage.Exif()
    exif[0x0112] = 6
    return picture(1, format="JPEG", exif=exif)


def sixteen_bit() -> bytes:
    buffer = io.BytesIO()
    PILImage.fromarray(np.arange(300, dtype=np.uint16).reshape(15, 20) * 200).save(buffer, "PNG")
    return buffer.getvalue()


def transparent_palette() -> bytes:
    buffer = io.BytesIO()
    PILImage.open(io.BytesIO(picture(2))).convert("P").save(buffer, "PNG", transparency=3)
    return buffer.getvalue()


def animated(format: str) -> bytes:
    frames = [PILImage.open(io.BytesIO(picture(number))) for number in range(3)]
    buffer = io.BytesIO()
    frames[0].save(buffer, format, save_all=True, append_images=frames[1:])
    return buffer.getvalue()


PICTURES = {
    "rgb": picture(0),
    "jpeg": picture(0, format="JPEG"),
    "cmyk": picture(0, "CMYK", "JPEG"),
    "grey": picture(0, "L"),
    "grey with alpha": picture(0, "LA"),
    "alpha": picture(0, "RGBA"),
    "bilevel": picture(0, "1"),
    "16 bit": sixteen_bit(),
    "palette with transparency": transparent_palette(),
    "exif": exif_rotated(),
    "gif": animated("GIF"),
    "apng": animated("PNG"),
    "webp": animated("WEBP"),
    "tiff": picture(0, format="TIFF"),
    "bmp": picture(0, format="BMP"),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_decoded_as_timm_would(kind: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = timm_decode(PICTURES[kind], tmp_path)
        found = decode(PICTURES[kind])
    assert found.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(found), expected)


def zero_sized() -> bytes:
    return b"GIF89a\x00\x00\x00\x00\x00\x00\x00,\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00;"


def bomb(width: int) -> bytes:
    """A small PNG whose header claims a huge picture."""
    import struct
    import zlib

    header = struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    body = struct.pack(">I", len(header)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return b"\x89PNG\r\n\x1a\n" + body + b"\x00\x00\x00\x00IEND\xaeB`\x82"


BROKEN = {
    "empty": (b"", "the file is empty"),
    "text": (b"this is not a picture at all", "not a picture in any format"),
    "truncated": (picture(0, format="JPEG")[:-200], "Truncated"),
    "truncated in the middle": (picture(0, format="BMP")[:-200], "truncated"),
    "zero-sized": (zero_sized(), "pixels|not a picture"),
    "bomb": (bomb(30000), "decompression bomb|exceeds limit"),
    "bomb that Pillow only warns of": (bomb(10000), "decompression bomb: 10000×10000"),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n", "not a picture"),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_what_is_no_picture(kind: str) -> None:
    data, reason = BROKEN[kind]
    with pytest.raises(DecodeError, match=reason) as caught:
        decode(data)
    assert "\n" not in str(caught.value)
    assert "0x" not in str(caught.value)  # the same file fails with the same words every time


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(PICTURES)), st.data())
@pytest.mark.filterwarnings("ignore")
def test_rotten_bytes_decode_or_fail_with_one_line(kind: str, draws) -> None:
    data = bytearray(PICTURES[kind])
    for _ in range(draws.draw(st.integers(1, 6))):
        data[draws.draw(st.integers(0, len(data) - 1))] = draws.draw(st.integers(0, 255))
    shortened = bytes(data[: draws.draw(st.integers(0, len(data)))])
    try:
        outcome = decode(shortened).mode
    except DecodeError as error:
        outcome = str(error)
    assert outcome
    assert "\n" not in outcome


# --- an object store ----------------------------------------------------------------------------------------


class FlakyStore:
    """A real S3 endpoint on loopback that answers every `period`-th request with an error."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self.period, self.requests = 0, 0
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, environ: dict, start_response) -> object:
        self.requests += 1
        if self.period and self.requests % self.period == 0:
            start_response("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        return self._app(environ, start_response)

    def uri(self, path: str) -> str:
        return f"s3://user:password@{path}?endpoint_override=127.0.0.1:{self._server.port}&scheme=http"

    def close(self) -> None:
        self._server.shutdown()


@pytest.fixture(scope="module")
def store() -> Iterator[FlakyStore]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = FlakyStore()
    yield store
    store.close()


@pytest.mark.parametrize("period", [0, 10])
def test_every_kind_on_an_object_store(tmp_path: Path, store: FlakyStore, period: int) -> None:
    images = images_of(40)
    folder = write_folder(tmp_path / "folder", images)
    (tmp_path / "tars").mkdir()
    (tmp_path / "tables").mkdir()
    for shard in range(2):
        part = images[shard * 20 : shard * 20 + 20]
        write_tar(tmp_path / "tars" / f"{shard}.tar", tar_members(part))
        write_parquet(tmp_path / "tables" / f"{shard}.parquet", part)
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
        assert not found.failures
        assert found.items.equals(local.items)
        assert found.fingerprint == local.fingerprint
        assert content(found) == content(local)
        assert "password" not in found.uri
    assert store.requests > before
    store.period = 0
    assert [image.error for image in found.reader.read(make_items(["x"], ["x"], [None]))] == ["does not exist"]
