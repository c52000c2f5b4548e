"""Listing on the workers: the blocks of a portion, what is left of it, and the check that each image is there once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.raw_sources import images_of, tar_members, write_folder, write_list, write_parquet, write_tar

from ghost_ray.config.policies import Stage
from ghost_ray.errors import InputError, JobFailed
from ghost_ray.jobs.extract import portions, survey
from ghost_ray.jobs.extract.census import Census
from ghost_ray.jobs.extract.list_stage import Lister, Todo
from ghost_ray.jobs.extract.packing import on_blocks, pack, unpack
from ghost_ray.jobs.extract.portions import Portion, portions_of
from ghost_ray.jobs.extract.resume import left_to_do
from ghost_ray.jobs.extract.survey import Outcome
from ghost_ray.jobs.extract.work_files import block_names, record_names
from ghost_ray.jobs.extract.write_stage import BLOCK_STAGES, WriteBlock, block_schema
from ghost_ray.sources import Choice, LabelFacts, Lowest, OnlyKeys, Source, map_labels, open_source, select
from ghost_ray.store import to_table

COUNT, ROWS = 30, 4


class Silent:
    def report(self, block: pa.Table, seconds: float) -> None:
        pass


@pytest.fixture
def staging(tmp_path: Path) -> str:
    return str(tmp_path / "staging")


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "_IMAGES", 5)


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
    settings = {"labels": labels, "class_names": source.class_names, "wanted": None, "staging": staging, **changes}
    return Lister(source.reader, source.uri, **settings)  # type: ignore[arg-type]


def write(block: pa.Table, staging: str, round_: str = "a", unread: Iterable[str] = ()) -> None:
    """What the other stages make of a block, with nothing computed; the images ``unread`` could not be read."""
    rows = block.num_rows
    failed = [key in set(unread) for key in block["key"].to_pylist()]
    done = to_table(
        block["key"].combine_chunks(), block["label"].to_numpy(), np.zeros(rows), np.zeros((rows, 2), np.float32)
    )
    columns = {
        "portion": block["portion"],
        "place": block["place"],
        "failed": pa.array(failed),
        "stage": pa.array([Stage.READ if each else None for each in failed], pa.string()),
        "error": pa.array(["gone" if each else None for each in failed], pa.string()),
        "batch_size": pa.array(np.full(rows, 4, np.int32)),
        **{f"{name}_seconds": pa.array(np.full(rows, 0.5, np.float32)) for name in BLOCK_STAGES},
    }
    for name, column in columns.items():
        done = done.append_column(name, column)
    WriteBlock(block_schema(2), Silent(), staging, round_)(done)


def look(cut: list[Portion], staging: str) -> Outcome:
    """The survey without a cluster."""
    whole = Outcome()
    blocks, records = block_names(staging), record_names(staging)
    for each in cut:
        own = [name for name in blocks if name.portion == each.number]
        whole.add(survey._look(survey._Files(each, own, records.get(each.number)), staging))
    return whole


@pytest.mark.parametrize("make", SOURCES)
def test_blocks_hold_every_image_once(make, tmp_path: Path, staging: str, small_portions: None) -> None:
    source = make(tmp_path)
    cut = portions_of(source)
    todo, done = left_to_do(cut, staging, again=True)
    assert (len(todo), done) == (len(cut), 0)
    blocks = [block for each in todo for block in lister(source, staging).blocks(each, ROWS)]
    assert max(block.num_rows for block in blocks) == ROWS
    rows = pa.concat_tables(blocks)
    assert sorted(rows["key"].to_pylist()) == sorted(source.seen.items["key"].to_pylist())
    assert rows.select(["portion", "place"]).group_by(["portion", "place"]).aggregate([]).num_rows == COUNT
    # What is listed without its bytes is read from where it lies.
    came = rows.filter(rows["data"].is_valid())
    assert came.num_rows == (COUNT if make in (shards, table) else 0)
    by_key = {image.key: image.data for image in source.reader.read(source.seen.items)}
    assert dict(zip(came["key"].to_pylist(), came["data"].to_pylist(), strict=True)).items() <= by_key.items()
    labels = dict(zip(rows["key"].to_pylist(), rows["label"].to_pylist(), strict=True))
    expected = map_labels(source, 1000).apply(source.seen.items["label"]).tolist()
    assert labels == dict(zip(source.seen.items["key"].to_pylist(), expected, strict=True))


@pytest.mark.parametrize("make", SOURCES)
def test_what_is_left_is_found_by_part(make, tmp_path: Path, staging: str, small_portions: None) -> None:
    source = make(tmp_path)
    cut = portions_of(source)
    list_all = lister(source, staging)
    todo, _ = left_to_do(cut, staging, again=True)
    blocks = [block for each in todo for block in list_all.blocks(each, ROWS)]
    bad = blocks[-1]["key"][0].as_py()
    for block in blocks[1:]:
        write(block, staging, unread=[bad])
    first = look(cut, staging)
    assert first.missing == blocks[0].num_rows
    assert [each.portion.number for each in first.left] == [blocks[0]["portion"][0].as_py()]
    assert first.failures["key"].to_pylist() == [bad]

    todo, done = left_to_do(cut, staging, again=True)
    assert done == COUNT - blocks[0].num_rows - 1
    left = [block for each in todo for block in list_all.blocks(each, ROWS)]
    keys = sorted(key for block in left for key in block["key"].to_pylist())
    assert keys == sorted([*blocks[0]["key"].to_pylist(), bad])
    for block in left:
        write(block, staging, round_="b")
    whole = look(cut, staging)
    assert (whole.images, whole.missing, whole.left, whole.failures.num_rows) == (COUNT, 0, [], 0)
    assert whole.batch_size == 4
    assert whole.seconds["read"] == pytest.approx(0.5 * (COUNT + 1))
    if make in (folder, image_list):
        assert whole.fingerprint == source.fingerprint


def test_a_row_that_was_not_listed_is_noticed(tmp_path: Path, staging: str) -> None:
    source = folder(tmp_path)
    cut = portions_of(source)
    (todo,), _ = left_to_do(cut, staging, again=True)
    blocks = list(lister(source, staging).blocks(todo, COUNT))
    other = blocks[0].set_column(0, "key", pc.binary_join_element_wise(blocks[0]["key"], "x", "/"))
    write(other, staging)
    with pytest.raises(JobFailed, match="do not match the images listed there"):
        look(cut, staging)


def test_a_block_cut_short_is_done_again(tmp_path: Path, staging: str) -> None:
    source = shards(tmp_path)
    cut = portions_of(source)
    todo, _ = left_to_do(cut, staging, again=True)
    for each in todo:
        for block in lister(source, staging).blocks(each, ROWS):
            write(block, staging)
    short = sorted(Path(staging, "blocks").iterdir())[2]
    short.write_bytes(short.read_bytes()[:100])
    found = look(cut, staging)
    assert found.missing == ROWS
    assert not short.exists()
    again = [block for each in found.left for block in lister(source, staging).blocks(each, ROWS)]
    assert sum(block.num_rows for block in again) == ROWS


def test_data_that_changed_are_noticed(tmp_path: Path, staging: str) -> None:
    source = folder(tmp_path)
    (todo,), _ = left_to_do(portions_of(source), staging, again=True)
    list(lister(source, staging).blocks(todo, ROWS))
    next((tmp_path / "folder").glob("*/*.png")).write_bytes(b"another size")
    (todo,), _ = left_to_do(portions_of(source), staging, again=True)
    with pytest.raises(InputError, match=r"has changed since the run began.*starts over"):
        list(lister(source, staging).blocks(todo, ROWS))


def test_labels_that_fit_no_class_are_refused_where_they_are(tmp_path: Path, staging: str) -> None:
    seen = shards(tmp_path)
    labels = map_labels(seen, 1000)
    write_tar(tmp_path / "tars" / "9.tar", [("a.png", b"x"), ("a.cls", b"1000")])
    write_tar(tmp_path / "tars" / "8.tar", [("a.png", b"x")])
    late = [Todo(Portion(0, (part,)), [], None, True) for part in open_source(str(tmp_path / "tars")).parts]
    with pytest.raises(InputError, match="'1000' fits no class of the head"):
        list(lister(seen, staging, labels=labels).blocks(late[-1], ROWS))
    with pytest.raises(InputError, match=r"without a label, first '8\.tar/a\.png'"):
        list(lister(seen, staging, labels=labels).blocks(late[-2], ROWS))


def test_a_label_far_from_its_image_is_found(tmp_path: Path, staging: str) -> None:
    members = [(f"{number}.png", b"x") for number in range(200)]
    members += [(f"{number}.cls", str(number).encode()) for number in range(200)]
    source = open_source(write_tar(tmp_path / "a.tar", members))
    (todo,), _ = left_to_do(portions_of(source), staging, again=True)
    blocks = list(lister(source, staging).blocks(todo, ROWS))
    rows = pa.concat_tables(blocks)
    assert rows["label"].to_pylist() == list(range(200))
    assert rows["data"].null_count == 0
    write(blocks[0], staging)
    (todo,), _ = left_to_do(portions_of(source), staging, again=True)
    left = pa.concat_tables(lister(source, staging).blocks(todo, ROWS))
    assert left["label"].to_pylist() == list(range(ROWS, 200))


@pytest.mark.parametrize(("limit", "per_class"), [(7, None), (None, 3), (8, 3), (0, None), (1000, 1000)])
def test_a_choice_made_in_parts_is_that_of_the_whole(
    tmp_path: Path, staging: str, small_portions: None, limit: int | None, per_class: int | None
) -> None:
    source = shards(tmp_path)
    choice = Choice(limit, per_class, seed=3)
    found = Census(0, LabelFacts([]), Lowest())
    for part in source.parts:
        for scan in source.reader.scan(part):
            found = found.merged(Census.of(scan.items, choice), choice)
    wanted = choice.chosen(found.lowest)
    expected = select(source.seen.items, limit, per_class, 3)
    todo, _ = left_to_do(portions_of(source), staging, again=True)
    blocks = [block for each in todo for block in lister(source, staging, wanted=wanted).blocks(each, ROWS)]
    keys = [key for block in blocks for key in block["key"].to_pylist()]
    assert sorted(keys) == sorted(expected["key"].to_pylist())
    assert (found.images, wanted.images) == (COUNT, len(keys))
    assert sum(name.images for name in record_names(staging).values()) == len(keys)


def test_only_some_keys(tmp_path: Path, staging: str) -> None:
    source = folder(tmp_path)
    keys = source.seen.items["key"].combine_chunks().slice(3, 5)
    (todo,), _ = left_to_do(portions_of(source), staging, again=True)
    rows = pa.concat_tables(lister(source, staging, wanted=OnlyKeys(keys)).blocks(todo, ROWS))
    assert rows["key"].to_pylist() == keys.to_pylist()


def test_blocks_are_small_on_their_way(tmp_path: Path, staging: str) -> None:
    (tmp_path / "list.txt").write_text("".join(f"{number:040d}.png 1\n" for number in range(20_000)))
    source = open_source(str(tmp_path / "list.txt"))
    (todo,), _ = left_to_do(portions_of(source)[:1], staging, again=True)
    block = next(iter(lister(source, staging).blocks(todo, 100)))
    assert block.num_rows == 100
    assert len(cloudpickle.dumps(pack(block))) < 40_000


class Doubled:
    def __call__(self, items: pa.Table) -> pa.Table:
        return pa.concat_tables([items, items])


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_block_travels_as_one_row(rows: int) -> None:
    pixels = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(rows * 6, dtype=np.uint8)), 6)
    block = pa.table({"key": [f"{row}" for row in range(rows)], "pixels": pixels, "none": pa.nulls(rows, pa.string())})
    packed = pack(block)
    assert packed.num_rows == 1
    assert unpack(packed).equals(block.cast(unpack(packed).schema))
    kind = cloudpickle.loads(cloudpickle.dumps(on_blocks(Doubled)))
    assert kind.__name__ == "Doubled"
    assert unpack(kind()(packed)).num_rows == 2 * rows
    assert kind()(pa.table({})).num_rows == 0
