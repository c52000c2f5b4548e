"""WebDataset shards, whole and rotten."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pytest
from support.raw_sources import PLACES, content, images_of, picture, tar_members, write_tar

from ghost_ray.errors import InputError
from ghost_ray.sources import LabelFacts, Part, map_labels, open_source, tars


@pytest.mark.parametrize("cut", ["in an image", "in a header", "before the end mark"])
def test_a_truncated_tar_gives_the_rows_before_and_one_failure(tmp_path: Path, cut: str) -> None:
    path = Path(write_tar(tmp_path / "a.tar", tar_members(images_of(6))))
    whole = open_source(str(path)).seen.items
    start = whole["start"][4].as_py()
    end = {"in an image": start + 5, "in a header": start - 300, "before the end mark": start - 512}[cut]
    path.write_bytes(path.read_bytes()[:end])
    source = open_source(str(path))
    assert source.seen.items.equals(whole.slice(0, 4))
    assert [failure.stage for failure in source.seen.failures] == ["read"]
    assert source.seen.failures[0].key == ("a.tar/0004.png" if cut == "in an image" else "a.tar")
    assert all(image.error is None for image in source.reader.read(source.seen.items))


def test_a_rotten_header_costs_one_member(tmp_path: Path) -> None:
    path = Path(write_tar(tmp_path / "a.tar", tar_members(images_of(5))))
    whole = open_source(str(path)).seen.items
    data = bytearray(path.read_bytes())
    header = whole["start"][2].as_py() - 512
    data[header : header + 100] = b"\xee" * 100
    path.write_bytes(data)
    source = open_source(str(path))
    assert source.seen.items["key"].to_pylist() == [f"a.tar/{n:04d}.png" for n in (0, 1, 3, 4)]
    assert LabelFacts.of(source.seen.items).values == sorted({str(PLACES[n % 3]) for n in (0, 1, 3, 4)})
    assert [failure.key for failure in source.seen.failures] == [f"a.tar/@{header}"]


def test_a_tar_that_shrinks_after_listing(tmp_path: Path) -> None:
    path = Path(write_tar(tmp_path / "a.tar", tar_members(images_of(3))))
    source = open_source(str(path))
    path.write_bytes(path.read_bytes()[: source.seen.items["start"][2].as_py() + 3])
    errors = [image.error for image in source.reader.read(source.seen.items)]
    assert errors == [None, None, "the tar ends inside this member"]
    path.unlink()
    assert [image.error for image in source.reader.read(source.seen.items)] == ["does not exist"] * 3


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_wild_tar_names_are_only_keys(tmp_path: Path, format: int) -> None:
    long = "deep/" * 40 + "ü" * 30 + ".png"
    names = [long, "../../etc/escape.png", "/root.png", "a\nb.png", "./dotted.png"]
    path = write_tar(tmp_path / "a.tar", [(name, picture(i)) for i, name in enumerate(names)], format)
    expected = [f"a.tar/{name}" for name in (long, "etc/escape.png", "root.png", "a%0Ab.png", "dotted.png")]
    source = open_source(path)
    assert source.seen.items["key"].to_pylist() == expected
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
    assert source.seen.items["label"].to_pylist() == ["3", "5", "6", None]
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

                def close(self) -> None:
                    handle.close()

            return Handle()

    counted = Counted()
    (scan,) = tars.TarReader(counted, str(tmp_path)).scan(Part("a.tar", Path(path).name))  # type: ignore[arg-type]
    assert scan.items.num_rows == 2
    assert 0 < counted.read < 1 << 20
