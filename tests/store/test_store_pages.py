"""Vectors read from Parquet pages are Arrow's, or are left to Arrow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghost_ray.store._levels import all_equal_or_first
from ghost_ray.store.pages import read_vectors
from ghost_ray.store.pieces import open_parquet


def vectors(rows: int, width: int) -> np.ndarray:
    return np.random.default_rng(rows * 1000 + width).standard_normal((rows, width)).astype(np.float32)


def write(path: Path, values: np.ndarray, **how: object) -> Path:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    numbers = pa.array(np.arange(len(values)))
    pq.write_table(pa.table({"label": numbers, "embedding": lists}), path, **{**PLAIN, **how})
    return path


def read(path: Path, width: int) -> list[np.ndarray | None]:
    with open_parquet(str(path)) as (file, source):
        return [read_vectors(source, file, i, "embedding", width) for i in range(file.metadata.num_row_groups)]


PLAIN = {"compression": "none", "use_dictionary": False}


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 7), (8, 8), (9, 64), (1000, 1), (1000, 3), (500, 1280)])
def test_plain_pages_are_read_whole(tmp_path: Path, rows: int, width: int) -> None:
    values = vectors(rows, width)
    (found,) = read(write(tmp_path / "a.parquet", values), width)
    np.testing.assert_array_equal(found, values)


def test_row_groups_of_several_pages(tmp_path: Path) -> None:
    values = vectors(5000, 16)
    how = {"row_group_size": 1700, "data_page_size": 4096, "write_batch_size": 256}
    found = read(write(tmp_path / "a.parquet", values, **how), 16)
    assert len(found) == 3
    np.testing.assert_array_equal(np.concatenate(found), values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "how",
    [
        {"compression": "zstd"},
        {"use_dictionary": True},
        {"data_page_version": "2.0"},
        {"use_byte_stream_split": ["embedding.list.element"]},
    ],
)
def test_other_pages_are_left_to_arrow(tmp_path: Path, how: dict[str, object]) -> None:
    assert read(write(tmp_path / "a.parquet", vectors(50, 8), **how), 8) == [None]


def test_missing_vectors_are_left_to_arrow(tmp_path: Path) -> None:
    lists = pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"embedding": lists}), tmp_path / "a.parquet", **PLAIN)
    lists = pa.array([[1.0, None], [None, 2.0]], pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"embedding": lists}), tmp_path / "b.parquet", **PLAIN)
    assert read(tmp_path / "a.parquet", 2) == read(tmp_path / "b.parquet", 2) == [None]


def test_another_width_or_type_is_left_to_arrow(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.parquet", vectors(6, 4)), 3) == [None]
    assert read(write(tmp_path / "b.parquet", vectors(6, 4).astype(np.float64)), 4) == [None]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_files_never_give_other_numbers_silently(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever is returned lies in the file: damage outside the values is noticed or has no effect on them."""
    folder = tmp_path_factory.getbasetemp() / "pages"
    folder.mkdir(exist_ok=True)
    values = vectors(20, 5)
    whole = write(folder / "whole.parquet", values).read_bytes()
    with open_parquet(str(folder / "whole.parquet")) as (file, _):
        chunk = file.metadata.row_group(0).column(1)
        first, length = chunk.data_page_offset, chunk.total_compressed_size - values.nbytes
        at = first + data.draw(st.integers(0, length - 1))
        damaged = bytearray(whole)
        damaged[at] ^= data.draw(st.integers(1, 255))
        (folder / "damaged.parquet").write_bytes(damaged)
        with pa.OSFile(str(folder / "damaged.parquet")) as broken:
            found = read_vectors(broken, file, 0, "embedding", 5)
    assert found is None or np.array_equal(found, values)


def test_a_header_of_structs_in_structs_is_left_to_arrow(tmp_path: Path) -> None:
    values = vectors(20_000, 1)
    damaged = bytearray(write(tmp_path / "a.parquet", values).read_bytes())
    with open_parquet(str(tmp_path / "a.parquet")) as (file, _):
        at = file.metadata.row_group(0).column(1).data_page_offset
        damaged[at : at + 3000] = b"\x1c" * 3000  # field 1 is a struct, whose field 1 is a struct, …
        (tmp_path / "damaged.parquet").write_bytes(damaged)
        with pa.OSFile(str(tmp_path / "damaged.parquet")) as broken:
            assert read_vectors(broken, file, 0, "embedding", 1) is None


@st.composite
def encoded_levels(draw: st.DrawFn) -> tuple[bytes, list[int], int]:
    """Levels in Parquet's hybrid encoding, in runs and packed groups as they come, and what they say."""
    bits = draw(st.integers(1, 3))
    encoded, levels = b"", []
    for _ in range(draw(st.integers(1, 6))):
        level = st.integers(0, 2**bits - 1)
        if draw(st.booleans()):
            run, value = draw(st.integers(1, 300)), draw(level)
            encoded += varint(run << 1) + bytes([value])
            levels += [value] * run
        else:
            values = draw(st.lists(level, min_size=8, max_size=24).map(lambda found: found[: len(found) // 8 * 8]))
            packed = sum(value << (bits * i) for i, value in enumerate(values))
            encoded += varint(len(values) // 8 << 1 | 1) + packed.to_bytes(len(values) // 8 * bits, "little")
            levels += values
    return encoded, levels, bits


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


@settings(max_examples=500, deadline=None)
@given(encoded_levels(), st.integers(1, 12), st.integers(0, 3), st.integers(0, 3))
def test_levels_are_judged_as_decoded(case: tuple[bytes, list[int], int], period: int, first: int, other: int) -> None:
    encoded, levels, bits = case
    data = np.frombuffer(encoded, np.uint8)
    wanted = [first if i % period == 0 else other for i in range(len(levels))]
    assert all_equal_or_first(data, bits, len(levels), period, first, other) == (levels == wanted)
    assert not all_equal_or_first(data, bits, len(levels) + 1, period, first, other)  # too few


@pytest.mark.parametrize("width", [2, 5, 9, 40, 1280])
def test_levels_of_equal_lists_are_accepted_and_of_others_not(width: int) -> None:
    def repetition(lengths: list[int]) -> list[int]:
        return [int(i > 0) for length in lengths for i in range(length)]

    for lengths, right in (([width] * 6, True), ([width - 1, width + 1] * 3, False)):
        levels = repetition(lengths)
        encoded = b"".join(varint(2) + bytes([level]) for level in levels)
        assert all_equal_or_first(np.frombuffer(encoded, np.uint8), 1, len(levels), width, 0, 1) is right
