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
from ghost_ray.sources import LabelFacts, Shard, map_labels, open_source, tars

PARTS = {"a.tar": slice(0, 2), "b.tar": slice(2, 5)}


@pytest.mark.parametrize("cut", ["in an image", "in a header", "before the end mark"])
def test_a_truncated_tar_gives_the_rows_before_and_one_failure(tmp_path: Path, cut: str) -> None:
    path = Path(write_tar(tmp_path / "a.tar", tar_members(images_of(6))))
    whole = open_source(str(path)).preview.items
    start = whole["start"][4].as_py()
    end = {"in an image": start + 5, "in a header": start - 300, "before the end mark": start - 512}[cut]
    path.write_bytes(path.read_bytes()[:end])
    source = open_source(str(path))
    assert source.preview.items.equals(whole.slice(0, 4))
    assert [failure.stage for failure in source.preview.failures] == ["read"]
    assert source.preview.failures[0].key == ("a.tar/0004.png" if cut == "in an image" else "a.tar")
    assert all(image.error is None for image in source.reader.read(source.preview.items))


def test_a_rotten_header_costs_one_member(tmp_path: Path) -> None:
    path = Path(write_tar(tmp_path / "a.tar", tar_members(images_of(5))))
    whole = open_source(str(path)).preview.items
    data = bytearray(path.read_bytes())
    header = whole["start"][2].as_py() - 512
    data[header : header + 100] = b"\xee" * 100
    path.write_bytes(data)
    source = open_source(str(path))
    assert source.preview.items["key"].to_pylist() == [f"a.tar/{n:04d}.png" for n in (0, 1, 3, 4)]
    assert LabelFacts.of(source.preview.items).values == sorted({str(PLACES[n % 3]) for n in (0, 1, 3, 4)})
    assert [failure.key for failure in source.preview.failures] == [f"a.tar/@{header}"]


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("filling", [b"\0", b"\xee"])
def test_a_hole_costs_the_members_it_touches(tmp_path: Path, format: int, filling: bytes) -> None:
    names = [f"{number:04d}{'ü' * 60}.png" for number in range(40)]  # so long that each has a header before its header
    path = Path(write_tar(tmp_path / "a.tar", [(name, picture(0)) for name in names], format))
    whole, size = open_source(str(path)).preview.items, path.stat().st_size
    starts = whole["start"].to_pylist()
    first, stop = starts[9] - 512, starts[24] + 10  # from a member's own header into the body of another
    data = bytearray(path.read_bytes())
    data[first:stop] = filling * (stop - first)
    path.write_bytes(data)
    source = open_source(str(path))
    assert source.preview.items["start"].to_pylist() == starts[:9] + starts[25:]
    assert content(source)[f"a.tar/{names[30]}"] == picture(0)
    (failure,) = source.preview.failures
    assert failure.key == f"a.tar/@{first}"
    assert failure.share == pytest.approx((stop - first) / size, abs=2048 / size)
    assert failure.images == source.preview.lost
    assert 12 <= failure.images <= 16  # by its share of the bytes
    (shard,) = source.shards
    bodies = [image for scan in source.reader.scan(shard, bodies=True) for image in scan.images or ()]
    assert [image.data for image in bodies] == [picture(0)] * 24


def test_what_follows_an_end_mark(tmp_path: Path) -> None:
    both = [Path(write_tar(tmp_path / name, tar_members(images_of(5)[part]))) for name, part in PARTS.items()]
    joined = tmp_path / "joined.tar"
    joined.write_bytes(b"".join(path.read_bytes() for path in both))
    preview = open_source(str(joined)).preview
    assert preview.items["key"].to_pylist() == [f"joined.tar/{number:04d}.png" for number in range(5)]
    assert not preview.failures
    end = joined.stat().st_size
    joined.write_bytes(joined.read_bytes() + b"neither zeros nor a tar" * 100)
    (failure,) = open_source(str(joined)).preview.failures
    assert int(failure.key.removeprefix("joined.tar/@")) < end


def test_a_tar_that_shrinks_after_listing(tmp_path: Path) -> None:
    path = Path(write_tar(tmp_path / "a.tar", tar_members(images_of(3))))
    source = open_source(str(path))
    path.write_bytes(path.read_bytes()[: source.preview.items["start"][2].as_py() + 3])
    errors = [image.error for image in source.reader.read(source.preview.items)]
    assert errors == [None, None, "the tar ends inside this member"]
    path.unlink()
    assert [image.error for image in source.reader.read(source.preview.items)] == ["does not exist"] * 3


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_wild_tar_names_are_only_keys(tmp_path: Path, format: int) -> None:
    long = "deep/" * 40 + "ü" * 30 + ".png"
    names = [long, "../../etc/escape.png", "/root.png", "a\nb.png", "./dotted.png"]
    path = write_tar(tmp_path / "a.tar", [(name, picture(i)) for i, name in enumerate(names)], format)
    expected = [f"a.tar/{name}" for name in (long, "etc/escape.png", "root.png", "a%0Ab.png", "dotted.png")]
    source = open_source(path)
    assert source.preview.items["key"].to_pylist() == expected
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
    assert source.preview.items["label"].to_pylist() == ["3", "5", "6", None]
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
    (scan,) = tars.TarReader(counted, str(tmp_path)).scan(Shard("a.tar", Path(path).name))  # type: ignore[arg-type]
    assert scan.items.num_rows == 2
    assert 0 < counted.read < 1 << 20
