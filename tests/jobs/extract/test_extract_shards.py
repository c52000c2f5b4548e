"""Extraction of sources too large to be seen whole at first; a few images are taken for many."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.pictures import CLASSES, write_folder
from support.raw_sources import picture, write_tar

from ghost_ray.config import ExtractConfig
from ghost_ray.errors import InputError
from ghost_ray.jobs.extract import blocks
from ghost_ray.jobs.extract import run as extract
from ghost_ray.sources import fingerprint_of, image_lists, list_all, open_source, select, source
from ghost_ray.store import Store

pytestmark = pytest.mark.usefixtures("local_ray")

PER_CLASS = 6


@pytest.fixture(autouse=True)
def little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_BYTES", 100)
    monkeypatch.setattr(source, "MAX_IMAGES", 1)
    monkeypatch.setattr(image_lists, "_SLICE_BYTES", 100)
    monkeypatch.setattr(blocks, "_GROUP_IMAGES", 1)


def make(out: Path, data: Path, **settings: Any) -> ExtractConfig:
    defaults = {"model": "support.networks:small", "batch_size": 4, "actors": "1", **settings}
    return ExtractConfig(data=str(data), out=str(out), **defaults)


def labelled(out: Path) -> dict[str, int]:
    store = Store.open(str(out))
    tables = [store.read_small(groups, "key", "label") for groups in store.row_groups()]
    rows = [row for table in tables for row in table.to_pylist()]
    assert len({row["key"] for row in rows}) == len(rows) == store.rows
    return {row["key"]: row["label"] for row in rows}


def write_named_shards(root: Path) -> None:
    """A shard for each class, with its name as the label."""
    root.mkdir()
    for number, name in enumerate(CLASSES):
        images = [(f"{image}.png", picture(10 * number + image)) for image in range(PER_CLASS)]
        labels = [(f"{image}.cls", name.encode()) for image in range(PER_CLASS)]
        pairs = [member for pair in zip(images, labels, strict=True) for member in pair]
        write_tar(root / f"{number}.tar", pairs)


def test_class_folders(tmp_path: Path) -> None:
    keys = write_folder(tmp_path / "data", PER_CLASS)
    assert open_source(str(tmp_path / "data")).fingerprint is None
    result = extract(make(tmp_path / "store", tmp_path / "data"))
    assert (result["rows"], result["failures"]) == (len(keys), 0)
    assert labelled(tmp_path / "store") == {key: CLASSES.index(key.split("/")[0]) for key in keys}
    data = Store.open(str(tmp_path / "store")).manifest.data[0]
    assert data.fingerprint == fingerprint_of(str(tmp_path / "data"))


def test_names_as_labels_and_a_choice_need_all_parts(tmp_path: Path) -> None:
    write_named_shards(tmp_path / "data")
    extract(make(tmp_path / "store", tmp_path / "data", per_class=2, seed=5))
    found = labelled(tmp_path / "store")
    whole = list_all(open_source(str(tmp_path / "data"))).preview.items
    chosen = select(whole, per_class=2, seed=5)
    assert sorted(found) == sorted(chosen["key"].to_pylist())
    assert Counter(found.values()) == dict.fromkeys(range(len(CLASSES)), 2)
    assert all(label == int(key.split(".")[0]) for key, label in found.items())


def test_a_label_that_fits_no_class_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(3):
        label = b"99" if number == 2 else b"1"
        write_tar(tmp_path / "data" / f"{number}.tar", [("a.png", picture(number)), ("a.cls", label)])
    with pytest.raises(InputError, match="'99' fits no class of the head") as said:
        extract(make(tmp_path / "store", tmp_path / "data"))
    assert "\n" not in str(said.value)
    assert not (tmp_path / "store").exists()


def test_a_line_that_repeats_far_away_is_refused(tmp_path: Path) -> None:
    keys = write_folder(tmp_path / "data", PER_CLASS)
    lines = [f"{key} {CLASSES.index(key.split('/')[0])}" for key in keys]
    (tmp_path / "list.txt").write_text("\n".join([*lines, lines[0]]))
    with pytest.raises(InputError, match=f"names '{keys[0]}' more than once"):
        extract(make(tmp_path / "store", tmp_path / "list.txt", root=str(tmp_path / "data")))
    assert not (tmp_path / "store").exists()
