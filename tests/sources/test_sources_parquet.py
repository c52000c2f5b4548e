"""Parquet in the Hugging Face image layout, whole and rotten."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from support.raw_sources import images_of, write_parquet

from ghost_ray.sources import map_labels, open_source


def test_a_broken_row_group_costs_no_other(tmp_path: Path) -> None:
    images = images_of(9)
    path = Path(write_parquet(tmp_path / "a.parquet", images, row_group_size=3))
    source = open_source(str(path))
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + 40] = b"\xff" * 40
    path.write_bytes(data)
    found = list(source.reader.read(source.preview.items))
    assert [image.error is None for image in found] == [True] * 3 + [False] * 3 + [True] * 3
    assert len({image.key for image in found}) == 9


def test_parquet_rows_without_bytes(tmp_path: Path) -> None:
    rows = [{"bytes": b"x", "path": None}, {"bytes": None, "path": "far/away.jpg"}, None]
    pq.write_table(pa.table({"img": rows, "label": [0, 1, 2]}), tmp_path / "a.parquet")
    source = open_source(str(tmp_path))
    assert [image.error for image in source.reader.read(source.preview.items)] == [None] + [
        "the row holds no image bytes"
    ] * 2


def test_a_rotten_shard_is_a_failure_of_its_own(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", images_of(3))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 this is not one")
    source = open_source(str(tmp_path))
    assert source.preview.items.num_rows == 3
    assert [(failure.key, failure.stage) for failure in source.preview.failures] == [("b.parquet", "read")]


def test_class_names_from_hugging_face_metadata(tmp_path: Path) -> None:
    features = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    table = pa.table({"image": [{"bytes": b"", "path": ""}], "label": [1]})
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)}), tmp_path / "a.parquet")
    found = map_labels(open_source(str(tmp_path)), 2)
    assert (found.index, found.class_names) == ({"1": 1}, ["cat", "dog"])
