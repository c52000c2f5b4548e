"""Shards: whatever a source is cut into, each image is in one of them, and no byte is requested twice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.raw_sources import images_of, refusal, tar_members, write_folder, write_list, write_parquet, write_tar

from ghost_ray.sources import Shard, Source, find_images, image_lists, list_all, open_source, parquet, tars
from ghost_ray.sources.image_lists import ListReader
from ghost_ray.sources.reading import ReadAhead

COUNT = 40


def write_tars(root: Path) -> str:
    for number in range(2):
        write_tar(root / f"{number}.tar", tar_members(images_of(COUNT)[number::2]))
    return str(root)


def write_tables(root: Path) -> str:
    for number in range(2):
        write_parquet(root / f"{number}.parquet", images_of(COUNT)[number::2])
    return str(root)


def write_lines(root: Path) -> str:
    folder = write_folder(root / "images", images_of(COUNT))
    return write_list(root / "images" / "list.txt", folder, images_of(COUNT))[0]


WRITERS: dict[str, Callable[[Path], str]] = {
    "folder": lambda root: write_folder(root, images_of(COUNT)),
    "webdataset": write_tars,
    "parquet": write_tables,
    "list": write_lines,
}


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a few images were many."""
    monkeypatch.setattr(image_lists, "_SLICE_BYTES", 100)
    monkeypatch.setattr(image_lists, "_LINES_OF_A_SCAN", 2)
    monkeypatch.setattr(tars, "_BODIES_OF_A_SCAN", 3)
    monkeypatch.setattr(tars, "_IMAGES_OF_A_SCAN", 7)
    monkeypatch.setattr(parquet, "_ROWS_OF_A_SCAN", 2)


def scanned(source: Source, *, bodies: bool) -> tuple[list[dict], list[bytes | None]]:
    scans = [scan for shard in source.shards for scan in source.reader.scan(shard, bodies)]
    images = [image.data for scan in scans for image in scan.images or source.reader.read(scan.items)]
    return pa.concat_tables([scan.items for scan in scans]).to_pylist(), images


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", WRITERS)
def test_reading_along_gives_what_listing_and_reading_give(tmp_path: Path, kind: str) -> None:
    source = open_source(WRITERS[kind](tmp_path))
    assert len(source.shards) >= 2
    items, images = scanned(source, bodies=False)
    assert len({row["key"] for row in items}) == COUNT
    assert items == source.preview.items.to_pylist()
    assert scanned(source, bodies=True) == (items, images)
    assert sorted(images) == sorted(data for _, _, data in images_of(COUNT))


@pytest.mark.parametrize("kind", WRITERS)
def test_a_preview_and_a_complete_listing(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = WRITERS[kind](tmp_path)
    whole = open_source(place)
    assert whole.preview.complete
    monkeypatch.setattr(image_lists, "_SLICE_BYTES", 100)
    monkeypatch.setattr(tars, "_BODIES_OF_A_SCAN", 3)
    monkeypatch.setattr("ghost_ray.sources.source.MAX_BYTES", 100)
    monkeypatch.setattr("ghost_ray.sources.source.MAX_IMAGES", 10)
    begun = open_source(place)
    assert not begun.preview.complete
    assert 0 < begun.preview.items.num_rows < COUNT
    assert COUNT / 2 < begun.preview.images < 2 * COUNT
    assert (begun.fingerprint is None) == (kind in ("folder", "list"))
    some = whole.preview.items["key"].to_pylist()[3::9]
    assert find_images(begun, some)["key"].to_pylist() == find_images(whole, some)["key"].to_pylist() == some
    listed = list_all(begun).preview
    assert (listed.complete, listed.images) == (True, COUNT)
    assert sorted(listed.items["key"].to_pylist()) == sorted(whole.preview.items["key"].to_pylist())


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.integers(0, 12), min_size=1, max_size=20),
    step=st.integers(1, 40),
    newline_at_the_end=st.booleans(),
)
def test_every_line_is_in_one_slice(
    tmp_path_factory: pytest.TempPathFactory, lines: list[int], step: int, newline_at_the_end: bool
) -> None:
    folder = tmp_path_factory.getbasetemp()
    names = [f"{number}{'ü' * length}.png" for number, length in enumerate(lines)]
    data = ("\n".join(f"{name} 1" for name in names) + "\n" * newline_at_the_end).encode()
    (folder / "sliced.txt").write_bytes(data)
    local = pa.fs.LocalFileSystem()
    reader = ListReader(local, str(folder), local, str(folder), "list")
    shards = [Shard("", "sliced.txt", at, min(at + step, len(data))) for at in range(0, len(data), step)]
    found = [key for shard in shards for scan in reader.scan(shard) for key in scan.items["key"].to_pylist()]
    assert found == names


def test_lines_that_repeat_are_refused_across_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_lists, "_SLICE_BYTES", 10)
    (tmp_path / "list.txt").write_text("a.png 0\nb.png 1\nc.png 0\na.png 0\n")
    assert "'a.png' more than once" in refusal(tmp_path / "list.txt")


def test_some_row_groups_of_a_file(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", images_of(10), row_group_size=2)
    source = open_source(str(tmp_path))
    shares = [Shard(f"a#{number}", "a.parquet", number, 3) for number in range(3)]
    keys = [[key for scan in source.reader.scan(shard) for key in scan.items["key"].to_pylist()] for shard in shares]
    assert [len(share) for share in keys] == [4, 4, 2]
    assert [key for share in keys for key in share] == source.preview.items["key"].to_pylist()


def test_a_label_far_from_its_image(tmp_path: Path, small_steps: None) -> None:
    images = [(f"{number}.png", b"x") for number in range(9)]
    labels = [(f"{number}.cls", str(number % 2).encode()) for number in range(9)]
    source = open_source(write_tar(tmp_path / "a.tar", [*images, *labels]))
    assert source.preview.items["label"].to_pylist() == [str(number % 2) for number in range(9)]


def test_the_label_beside_an_image_counts(tmp_path: Path) -> None:
    members = [("a.json", b"1"), ("a.png", b"x"), ("b.png", b"x"), ("b.cls", b"2"), ("a.cls", b"3"), ("b.json", b"4")]
    source = open_source(write_tar(tmp_path / "a.tar", members))
    assert source.preview.items["label"].to_pylist() == ["1", "2"]


@settings(max_examples=100, deadline=None)
@given(jumps=st.lists(st.tuples(st.integers(0, 200_000), st.integers(1, 100_000)), min_size=1, max_size=30))
def test_reading_ahead_requests_no_byte_twice(jumps: list[tuple[int, int]]) -> None:
    data = np.random.default_rng(0).bytes(sum(jump + count for jump, count in jumps))
    requested: list[tuple[int, int]] = []

    class Handle:
        def read_at(self, count: int, offset: int) -> bytes:
            requested.append((offset, min(offset + count, len(data))))
            return data[offset : offset + count]

    ahead, at = ReadAhead(Handle(), len(data)), 0  # type: ignore[arg-type]
    for jump, count in jumps:
        at += jump
        assert ahead.read(at, count) == data[at : at + count]
        at += count
    assert all(before[1] <= after[0] for before, after in pairwise(requested))


def test_small_members_that_follow_each_other_take_few_requests() -> None:
    requested: list[int] = []

    class Handle:
        def read_at(self, count: int, offset: int) -> bytes:
            requested.append(count)
            return b"x" * count

    ahead = ReadAhead(Handle(), 20 << 20)  # type: ignore[arg-type]
    for offset in range(0, 20 << 20, 1024):
        ahead.read(offset, 512)
    assert len(requested) < 16
