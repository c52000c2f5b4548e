"""Image folders: what is listed, labelled and ignored."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pytest
from support.raw_sources import WNIDS, content, images_of, picture, write_folder

from ghost_ray.errors import InputError
from ghost_ray.sources import LabelFacts, map_labels, open_source


def test_folder_keys_labels_and_what_is_ignored(tmp_path: Path) -> None:
    write_folder(tmp_path, [("cat", "b.JPG", b"x"), ("cat", "a.png", b"xy"), ("ant", "deep/c.webp", b"")][:2])
    (tmp_path / "ant" / "deep").mkdir(parents=True)
    (tmp_path / "ant" / "deep" / "c.webp").write_bytes(b"")
    (tmp_path / "bee").mkdir()
    (tmp_path / ".cache").mkdir()
    for name in ("cat/notes.txt", "cat/._a.png", ".cache/a.png"):
        (tmp_path / name).write_bytes(b"?")
    source = open_source(str(tmp_path))
    assert source.preview.items.select(["key", "label", "size"]).to_pylist() == [
        {"key": "ant/deep/c.webp", "label": "ant", "size": 0},
        {"key": "cat/a.png", "label": "cat", "size": 2},
        {"key": "cat/b.JPG", "label": "cat", "size": 1},
    ]
    assert source.class_names == ["ant", "bee", "cat"]  # a class without images keeps its place
    assert LabelFacts.of(source.preview.items).values == ["ant", "cat"]
    assert map_labels(source, 3).index == {"ant": 0, "bee": 1, "cat": 2}


def test_flat_folder_has_no_labels(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(picture(number))
    source = open_source(str(tmp_path))
    assert source.kind == "flat"
    assert source.preview.items["label"].null_count == 3
    with pytest.raises(InputError, match=r"has no labels.*`unknown`"):
        map_labels(source, 10)


def test_flat_may_be_asked_for(tmp_path: Path) -> None:
    source = open_source(write_folder(tmp_path, images_of(3)), format="flat")
    assert source.kind == "flat"
    assert source.preview.items["label"].null_count == source.preview.items.num_rows == 3


@pytest.mark.parametrize("use_pyarrow", [False, True])
def test_listing_is_the_same_through_any_file_system(tmp_path: Path, use_pyarrow: bool, monkeypatch) -> None:
    root = write_folder(tmp_path / "data", images_of(9))
    plain = open_source(root)
    if use_pyarrow:
        remote = pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem())
        monkeypatch.setattr("ghost_ray.sources.image_formats.resolve", lambda uri, field: (remote, "data"))
    source = open_source(root)
    assert source.preview.items.equals(plain.preview.items)
    assert source.fingerprint == plain.fingerprint
    assert source.class_names == plain.class_names
    assert content(source) == content(plain)


def test_unreadable_files_become_errors_of_their_key(tmp_path: Path) -> None:
    root = Path(write_folder(tmp_path, images_of(3)))
    (root / WNIDS[0] / "broken.png").symlink_to(root / "nowhere")
    (root / WNIDS[0] / "loop").symlink_to(root / WNIDS[0])
    os.mkfifo(root / WNIDS[0] / "pipe.png")
    source = open_source(str(root))
    images = {image.key: image for image in source.reader.read(source.preview.items)}
    assert images[f"{WNIDS[0]}/broken.png"].error == "does not exist"
    assert sum(image.error is None for image in images.values()) == 3  # the loop adds nothing
    assert [(failure.key, failure.stage) for failure in source.preview.failures] == [(f"{WNIDS[0]}/pipe.png", "list")]


def test_linked_folders_are_listed_under_each_link_and_a_link_in_them_once(tmp_path: Path) -> None:
    shared, deep = tmp_path / "shared", tmp_path / "deep"
    for place in (shared, deep):
        place.mkdir()
        (place / "a.png").write_bytes(picture(1))
    (shared / "more").symlink_to(deep)
    root = tmp_path / "root"
    (root / "ant").mkdir(parents=True)
    (root / "ant" / "x").symlink_to(shared)
    (root / "ant" / "y").symlink_to(shared)
    source = open_source(str(root))
    assert source.preview.items["key"].to_pylist() == ["ant/x/a.png", "ant/x/more/a.png", "ant/y/a.png"]
    (failure,) = source.preview.failures
    assert (failure.key, failure.stage) == ("ant/y/more/", "list")
    assert "followed before" in failure.error


def test_folders_too_deep_to_walk_are_told(tmp_path: Path) -> None:
    (tmp_path / "root" / "ant").mkdir(parents=True)
    (tmp_path / "root" / "ant" / "a.png").write_bytes(picture(1))
    place = tmp_path / "root" / "ant"
    for _ in range(600):
        place /= "d"
    place.mkdir(parents=True)
    source = open_source(str(tmp_path / "root"))
    assert source.preview.items["key"].to_pylist() == ["ant/a.png"]
    (failure,) = source.preview.failures
    assert "more than 100 folders deep" in failure.error


def test_names_that_are_not_utf8_are_told(tmp_path: Path) -> None:
    write_folder(tmp_path, images_of(1))
    with open(os.fsencode(tmp_path) + b"/" + WNIDS[0].encode() + b"/\xff.png", "wb") as handle:
        handle.write(picture(1))
    source = open_source(str(tmp_path))
    assert source.preview.items.num_rows == 1
    assert [failure.error for failure in source.preview.failures] == ["the file's name is not UTF-8"]


def test_a_name_with_a_newline_has_a_key_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "a\nb.png").write_bytes(picture(0))
    source = open_source(str(tmp_path))
    assert content(source) == {"a%0Ab.png": picture(0)}
