"""Pictures of samples on a page: those that the evaluation keeps, and nothing that a file names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ghost_ray.jobs.evaluate.illustrating import MOST_BYTES, PICTURES, PICTURES_SCHEMA, SHOWN
from ghost_ray.report.pictures import galleries

JPEG = b"\xff\xd8\xff\xe0 picture"


def write_samples(folder: Path, samples: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(samples, schema=PICTURES_SCHEMA), folder / PICTURES)


def known(row: int, **more: Any) -> dict[str, Any]:
    sample = {"method": "ghost", "set": "known", "key": f"red/{row}.png", "label": "red", "pred": "blue"}
    return {**sample, "score": float(row), "jpeg": JPEG, **more}


def unknown(row: int, **more: Any) -> dict[str, Any]:
    beside = {"beside_key": "blue/1.png", "beside_score": 0.25, "beside_jpeg": JPEG}
    return {**known(row), "set": "grey", "key": f"grey/{row}.png", "label": "", **beside, **more}


def test_the_samples_of_an_evaluation_are_shown_in_their_order(tmp_path: Path) -> None:
    write_samples(tmp_path, [known(0, score=float("-inf")), known(1, pred="red"), unknown(0), unknown(1)])
    rejected, accepted = galleries({"grey": str(tmp_path), "nowhere": str(tmp_path / "nowhere")}, "ghost", "x")
    assert [rejected.title, accepted.title] == ["Knowns rejected first", "Accepted with the highest scores: grey"]
    assert [item.picture.key for item in rejected.items] == ["red/0.png", "red/1.png"]
    assert rejected.items[0].picture.note == "red, classified as blue, score −∞"
    assert rejected.items[1].picture.note == "red, classified correctly, score 1.0000"
    assert [item.picture.key for item in accepted.items] == ["grey/0.png", "grey/1.png"]
    assert accepted.items[0].picture.note == "classified as blue, score 0.0000"
    assert accepted.items[0].beside is not None
    assert accepted.items[0].beside.note == "a known of blue, score 0.2500"
    assert all(item.picture.jpeg for item in (*rejected.items, *accepted.items))
    assert "--images" not in rejected.caption + accepted.caption


def test_where_no_image_was_read_keys_stand_alone(tmp_path: Path) -> None:
    write_samples(tmp_path, [known(0, jpeg=None), unknown(0, jpeg=None, beside_jpeg=None)])
    rejected, accepted = galleries({"grey": str(tmp_path)}, "ghost", "x")
    assert "`--images known=PLACE`" in rejected.caption
    assert "`--images grey=PLACE`" in accepted.caption
    assert rejected.items[0].picture.key == "red/0.png"


def test_evaluations_without_images_or_of_another_method_have_no_gallery(tmp_path: Path) -> None:
    assert galleries({"grey": str(tmp_path)}, "ghost", "x") == []
    write_samples(tmp_path, [known(0), unknown(0)])
    assert galleries({"grey": str(tmp_path)}, "msp", "x") == []
    assert galleries({"../grey": str(tmp_path)}, "ghost", "x")[1:] == []


@pytest.mark.parametrize("jpeg", [b"<svg onload='x()'/>", b"", JPEG + bytes(MOST_BYTES)])
def test_what_is_no_small_jpeg_is_left_out(tmp_path: Path, jpeg: bytes) -> None:
    write_samples(tmp_path, [known(row, jpeg=jpeg) for row in range(3 * SHOWN)])
    (gallery,) = galleries({"grey": str(tmp_path)}, "ghost", "x")
    assert len(gallery.items) == SHOWN
    assert all(item.picture.jpeg is None for item in gallery.items)


@pytest.mark.parametrize("content", [b"", b"PAR1 no table", None])
def test_a_damaged_file_is_no_gallery(tmp_path: Path, content: bytes | None) -> None:
    if content is None:
        pq.write_table(pa.table({"key": [1]}), tmp_path / PICTURES)
    else:
        (tmp_path / PICTURES).write_bytes(content)
    assert galleries({"grey": str(tmp_path)}, "ghost", "x") == []
