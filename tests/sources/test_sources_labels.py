"""From a source's labels to the classes of a head."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from support.raw_sources import PLACES, WNIDS

from ghost_ray.errors import InputError
from ghost_ray.sources import Preview, RawLabels, Source, load_classes, map_labels, match_labels
from ghost_ray.sources.source import make_items


def source_with(labels: list[str | None], kind: str = "folder", class_names: list[str] | None = None) -> Source:
    keys = [f"{i}.png" for i in range(len(labels))]
    names = class_names or (sorted({x for x in labels if x}) if kind == "folder" else None)
    preview = Preview(make_items(keys, keys, labels), [], None, True, len(keys), 0, "")
    return Source("data", kind, [], None, preview, "", names)  # type: ignore[arg-type]


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
    assert "table of classes" in found.notes[0]


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
    found = map_labels(source_with(["cat", "dog"]), 9, {"dog": 7, "cat": 2})
    assert found.present() == [2, 7]
    narrowed = found.restricted([2, 7])
    assert narrowed.index == {"cat": 0, "dog": 1}
    assert narrowed.class_names == ["cat", "dog"]
    assert found.restricted([7, 3, 2]).index == {"cat": 2, "dog": 0}
    with pytest.raises(InputError, match=r"'dog': is class 7 of the whole head, which was not kept"):
        found.restricted([2, 3])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"cat": 0, "big dog": 1}'),
        ("a.json", '["cat", "big dog"]'),
        ("a.yaml", "cat: 0\nbig dog: 1\n"),
        ("a.txt", "cat 0\nbig dog\t1\n"),
        ("a.txt", "cat\nbig dog\n"),
        ("a.csv", "cat,0\nbig dog,1\n"),
        ("a.json", '{"0": "cat", "1": "big dog"}'),
        ("a.yaml", "0: cat\n1: big dog\n"),
    ],
)
def test_classes_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert load_classes(str(tmp_path / name)) == {"cat": 0, "big dog": 1}


def test_of_an_id_and_a_name_both_are_known_and_the_name_is_shown(tmp_path: Path) -> None:
    words = {"0": ["n02012849", "crane"], "1": ["n03126707", "crane"], "2": ["n01440764", "tench"]}
    (tmp_path / "a.json").write_text(json.dumps(words))
    table = load_classes(str(tmp_path / "a.json"))
    assert table == {"n02012849": 0, "n03126707": 1, "n01440764": 2, "tench": 2}
    found = match_labels(RawLabels(["n01440764"], "x", numbers_are_indices=False), 3, table)
    assert found.index == {"n01440764": 2}
    assert found.class_names == ["n02012849", "n03126707", "tench"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{"),
        ("a.json", "3"),
        ("a.json", '{"a": "b"}'),
        ("a.json", '{"0": ["a", 1]}'),
        ("a.json", '{"0": "a", "1": "a"}'),
        ("a.txt", "a 0\na 1\n"),
        ("a.yaml", "a: [1"),
        ("b", ""),
    ],
)
def test_classes_files_that_are_wrong(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=r"^classes"):
        load_classes(str(tmp_path / name))
    with pytest.raises(InputError, match=r"^classes"):
        load_classes(str(tmp_path / "nowhere.json"))
