"""Listing on the workers: the blocks of a shard group, what is left of it, and that each image is there once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.raw_sources import images_of, tar_members, write_folder, write_list, write_parquet, write_tar

from ghost_ray.cluster import threads
from ghost_ray.config.limits import Stage
from ghost_ray.errors import InputError, JobFailed
from ghost_ray.jobs.extract import blocks as blocks_module
from ghost_ray.jobs.extract.blocks import (
    Block,
    BlockWriter,
    Remaining,
    ShardGroup,
    block_schema,
    group_shards,
    listing_names,
    over_rows,
    remaining_work,
)
from ghost_ray.jobs.extract.census import Census
from ghost_ray.jobs.extract.commit import Outcome, check_blocks
from ghost_ray.jobs.extract.listing import Lister
from ghost_ray.sources import Choice, Failure, LabelFacts, Lowest, OnlyKeys, Source, map_labels, open_source, select
from ghost_ray.store import to_table

COUNT, ROWS = 30, 4


@pytest.fixture
def staging(tmp_path: Path) -> str:
    return str(tmp_path / "staging")


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "_GROUP_IMAGES", 5)


def folder(root: Path) -> Source:
    return open_source(write_folder(root / "folder", images_of(COUNT)))


def shards(root: Path) -> Source:
    (root / "tars").mkdir()
    for number in range(3):
        write_tar(root / "tars" / f"{number}.tar", tar_members(images_of(COUNT)[number::3]))
    return open_source(str(root / "tars"))


def table(root: Path) -> Source:
    return open_source(write_parquet(root / "a.parquet", images_of(COUNT)))


def image_list(root: Path) -> Source:
    at = write_folder(root / "images", images_of(COUNT))
    return open_source(write_list(root / "list.txt", at, images_of(COUNT))[0], root=at)


SOURCES = [folder, shards, table, image_list]


def lister(source: Source, staging: str, **changes: object) -> Lister:
    labels = map_labels(source, 1000)
    settings = {"labels": labels, "class_names": source.class_names, "wanted": None, "rows": ROWS, **changes}
    return Lister(source.reader, source.uri, staging=staging, **settings)  # type: ignore[arg-type]


def write(block: Block, staging: str, round_: str = "a", unread: Iterable[str] = ()) -> None:
    """What the other stages make of a block, with nothing computed; the images ``unread`` could not be read."""
    images, rows = block.images, block.images.num_rows
    failed = [key in set(unread) for key in images["key"].to_pylist()]
    done = to_table(
        images["key"].combine_chunks(), images["label"].to_numpy(), np.zeros(rows), np.zeros((rows, 2), np.float32)
    )
    columns = {
        "position": images["position"],
        "failed": pa.array(failed),
        "stage": pa.array([Stage.READ if each else None for each in failed], pa.string()),
        "error": pa.array(["gone" if each else None for each in failed], pa.string()),
    }
    for name, column in columns.items():
        done = done.append_column(name, column)
    BlockWriter(block_schema(2), staging, round_)(replace(block, seconds={"read": 0.5}), done, 4)


def check(groups: list[ShardGroup], staging: str) -> Outcome:
    with threads(2):
        return check_blocks(groups, staging)


def listed(source: Source, staging: str, groups: list[ShardGroup] | None = None, **changes: object) -> list[Block]:
    """The blocks that are left of a source, those with images."""
    remaining, _ = remaining_work(group_shards(source) if groups is None else groups, staging, retry_reads=True)
    found = [block for work in remaining for block in lister(source, staging, **changes).blocks(work)]
    assert sum(block.ends_listing for block in found) == len(remaining)
    return [block for block in found if block.images.num_rows]


def rows_in(blocks: Iterable[Block]) -> pa.Table:
    return pa.concat_tables([block.images for block in blocks])


@pytest.mark.parametrize("make", SOURCES)
def test_blocks_hold_every_image_once(make, tmp_path: Path, staging: str, small_groups: None) -> None:
    source = make(tmp_path)
    groups = group_shards(source)
    remaining, done = remaining_work(groups, staging, retry_reads=True)
    assert (len(remaining), done) == (len(groups), 0)
    blocks = listed(source, staging)
    assert max(block.images.num_rows for block in blocks) == ROWS
    rows = rows_in(blocks)
    assert sorted(rows["key"].to_pylist()) == sorted(source.preview.items["key"].to_pylist())
    positions = {(block.group, at) for block in blocks for at in block.images["position"].to_pylist()}
    assert len(positions) == COUNT
    # What is listed without its bytes is read from where it lies.
    came = rows.filter(rows["data"].is_valid())
    assert came.num_rows == (COUNT if make in (shards, table) else 0)
    by_key = {image.key: image.data for image in source.reader.read(source.preview.items)}
    assert dict(zip(came["key"].to_pylist(), came["data"].to_pylist(), strict=True)).items() <= by_key.items()
    labels = dict(zip(rows["key"].to_pylist(), rows["label"].to_pylist(), strict=True))
    expected = map_labels(source, 1000).apply(source.preview.items["label"]).tolist()
    assert labels == dict(zip(source.preview.items["key"].to_pylist(), expected, strict=True))
    assert rows["group"].null_count == COUNT


@pytest.mark.parametrize("make", SOURCES)
def test_what_is_left_is_found_by_group(make, tmp_path: Path, staging: str, small_groups: None) -> None:
    source = make(tmp_path)
    groups = group_shards(source)
    blocks = listed(source, staging)
    bad = blocks[-1].images["key"][0].as_py()
    for block in blocks[1:]:
        write(block, staging, unread=[bad])
    first = check(groups, staging)
    assert first.missing == blocks[0].images.num_rows
    assert [work.group.number for work in first.remaining] == [blocks[0].group]
    assert first.failures["key"].to_pylist() == [bad]

    _, done = remaining_work(groups, staging, retry_reads=True)
    assert done == COUNT - blocks[0].images.num_rows - 1
    left = listed(source, staging)
    assert sorted(rows_in(left)["key"].to_pylist()) == sorted([*blocks[0].images["key"].to_pylist(), bad])
    for block in left:
        write(block, staging, round_="b")
    whole = check(groups, staging)
    assert (whole.images, whole.missing, whole.remaining, whole.failures.num_rows) == (COUNT, 0, [], 0)
    assert whole.batch_size == 4
    assert whole.seconds["read"] == pytest.approx(0.5 * (len(blocks) - 1 + len(left)))
    if make in (folder, image_list):
        assert whole.fingerprint == source.fingerprint


def test_a_row_that_was_not_listed_is_noticed(tmp_path: Path, staging: str) -> None:
    source = folder(tmp_path)
    (block,) = listed(source, staging, rows=COUNT)
    other = block.images.set_column(0, "key", pc.binary_join_element_wise(block.images["key"], "x", "/"))
    write(replace(block, images=other), staging)
    with pytest.raises(JobFailed, match="do not match the images listed there"):
        check(group_shards(source), staging)


def test_a_block_cut_short_is_done_again(tmp_path: Path, staging: str) -> None:
    source = shards(tmp_path)
    for block in listed(source, staging):
        write(block, staging)
    short = sorted(Path(staging, "blocks").iterdir())[2]
    short.write_bytes(short.read_bytes()[:100])
    found = check(group_shards(source), staging)
    assert found.missing == ROWS
    assert not short.exists()
    again = [block for work in found.remaining for block in lister(source, staging).blocks(work)]
    assert sum(block.images.num_rows for block in again) == ROWS


def test_data_that_changed_are_noticed(tmp_path: Path, staging: str) -> None:
    source = folder(tmp_path)
    listed(source, staging)
    next((tmp_path / "folder").glob("*/*.png")).write_bytes(b"another size")
    with pytest.raises(InputError, match=r"has changed since the run began.*starts over"):
        listed(source, staging)


def test_labels_that_fit_no_class_are_refused_where_they_are(tmp_path: Path, staging: str) -> None:
    seen = shards(tmp_path)
    labels = map_labels(seen, 1000)
    write_tar(tmp_path / "tars" / "9.tar", [("a.png", b"x"), ("a.cls", b"1000")])
    write_tar(tmp_path / "tars" / "8.tar", [("a.png", b"x")])
    late = [Remaining(ShardGroup(0, (shard,)), [], None, True) for shard in open_source(str(tmp_path / "tars")).shards]
    with pytest.raises(InputError, match="'1000' fits no class of the head"):
        list(lister(seen, staging, labels=labels).blocks(late[-1]))
    with pytest.raises(InputError, match=r"without a label, first '8\.tar/a\.png'"):
        list(lister(seen, staging, labels=labels).blocks(late[-2]))


def test_a_label_far_from_its_image_is_found(tmp_path: Path, staging: str) -> None:
    members = [(f"{number}.png", b"x") for number in range(200)]
    members += [(f"{number}.cls", str(number).encode()) for number in range(200)]
    source = open_source(write_tar(tmp_path / "a.tar", members))
    blocks = listed(source, staging)
    rows = rows_in(blocks)
    assert rows["label"].to_pylist() == list(range(200))
    assert rows["data"].null_count == 0
    write(blocks[0], staging)
    assert rows_in(listed(source, staging))["label"].to_pylist() == list(range(ROWS, 200))


def test_unknowns_keep_where_they_came_from(tmp_path: Path, staging: str) -> None:
    source = folder(tmp_path)
    rows = rows_in(listed(source, staging, labels=None))
    assert set(rows["label"].to_pylist()) == {-1}
    assert rows["group"].to_pylist() == [key.split("/")[0] for key in rows["key"].to_pylist()]


@pytest.mark.parametrize(("limit", "per_class"), [(7, None), (None, 3), (8, 3), (0, None), (1000, 1000)])
def test_a_choice_made_in_shards_is_that_of_the_whole(
    tmp_path: Path, staging: str, small_groups: None, limit: int | None, per_class: int | None
) -> None:
    source = shards(tmp_path)
    choice = Choice(limit, per_class, seed=3)
    found = Census(0, LabelFacts([]), Lowest())
    for shard in source.shards:
        for scan in source.reader.scan(shard):
            found = found.merged(Census.of(scan.items, choice), choice)
    wanted = choice.chosen(found.lowest)
    expected = select(source.preview.items, limit, per_class, 3)
    keys = [key for block in listed(source, staging, wanted=wanted) for key in block.images["key"].to_pylist()]
    assert sorted(keys) == sorted(expected["key"].to_pylist())
    assert (found.images, wanted.images) == (COUNT, len(keys))
    assert sum(name.images for name in listing_names(staging).values()) == len(keys)


def test_only_some_keys(tmp_path: Path, staging: str) -> None:
    source = folder(tmp_path)
    keys = source.preview.items["key"].combine_chunks().slice(3, 5)
    rows = rows_in(listed(source, staging, wanted=OnlyKeys(keys)))
    assert rows["key"].to_pylist() == keys.to_pylist()


def test_blocks_are_small_on_their_way(tmp_path: Path, staging: str) -> None:
    (tmp_path / "list.txt").write_text("".join(f"{number:040d}.png 1\n" for number in range(20_000)))
    source = open_source(str(tmp_path / "list.txt"))
    block = listed(source, staging, group_shards(source)[:1], rows=100)[0]
    assert block.images.num_rows == 100
    assert len(cloudpickle.dumps(block.to_row())) < 40_000


class Doubled:
    def __call__(self, block: Block) -> Block:
        return replace(block, images=pa.concat_tables([block.images, block.images]))


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_block_travels_as_one_row(rows: int) -> None:
    pixels = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(rows * 6, dtype=np.uint8)), 6)
    images = pa.table({"key": pa.array([f"{row}" for row in range(rows)], pa.string()), "pixels": pixels})
    block = Block(7, images, {"read": 0.5}, True, [Failure("a.tar", "read", "short", images=3)])
    row = block.to_row()
    assert row.num_rows == 1
    found = Block.from_row(row)
    assert found.images.equals(images.cast(found.images.schema))
    assert replace(found, images=images) == block
    kind = cloudpickle.loads(cloudpickle.dumps(over_rows(Doubled)))
    assert kind.__name__ == "Doubled"
    assert Block.from_row(kind()(row)).images.num_rows == 2 * rows
    assert kind()(pa.table({})).num_rows == 0
