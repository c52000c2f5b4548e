"""Pictures of samples: the right ones, small, and keys alone where the images are gone."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from ghost_ray.report.pictures import SHOWN, accepted_unknowns, class_names, galleries, rejected_knowns

NAMES = ["red", "blue"]


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    """Ten knowns of two colours and ten grey unknowns, with scores; stores are their manifests alone."""
    folder = tmp_path / "evaluation"
    (folder / "scores").mkdir(parents=True)
    for part, colours in {"known": [(200, 0, 0), (0, 0, 200)], "grey": [(99, 99, 99)] * 2}.items():
        keys, labels = [], []
        for i in range(10):
            place = tmp_path / "images" / part / NAMES[i % 2] / f"{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (300, 200), colours[i % 2]).save(place)
            keys.append(f"{NAMES[i % 2]}/{i}.png")
            labels.append(i % 2 if part == "known" else -1)
        pred = [i % 2 for i in range(10)]
        columns = {"key": keys, "pred": pa.array(pred, pa.int32()), "label": pa.array(labels, pa.int32())}
        scores = np.arange(10.0) if part == "grey" else np.array([-np.inf, *range(9, 0, -1)], float)
        pq.write_table(pa.table({**columns, "score": scores}), folder / "scores" / f"ghost__{part}.parquet")
        (tmp_path / part).mkdir()
        config = {"data": str(tmp_path / "images" / part), "format": None, "root": None}
        (tmp_path / part / "manifest.json").write_text(json.dumps({"config": config, "class_names": NAMES}))
    stores = {"known": str(tmp_path / "known"), "unknown": {"grey": str(tmp_path / "grey")}}
    (folder / "manifest.json").write_text(json.dumps({"config": stores}))
    return folder


def test_the_surest_unknowns_stand_beside_knowns_of_their_class(evaluation: Path, tmp_path: Path) -> None:
    found = accepted_unknowns(str(evaluation), "ghost", "grey", class_names(str(tmp_path / "known")), "x")
    assert found is not None
    assert [item.picture.key for item in found.items] == [f"{NAMES[i % 2]}/{i}.png" for i in range(9, 9 - SHOWN, -1)]
    for item, expected in zip(found.items, (("blue", (0, 0, 200)), ("red", (200, 0, 0))), strict=False):
        assert item.beside is not None
        assert item.picture.note.startswith(f"classified as {expected[0]}")
        for picture, colour in ((item.picture, (99, 99, 99)), (item.beside, expected[1])):
            assert picture.jpeg is not None
            assert len(picture.jpeg) < 12_000
            shown = Image.open(io.BytesIO(picture.jpeg))
            assert max(shown.size) <= 112
            assert np.allclose(shown.getpixel((10, 10)), colour, atol=12)


def test_the_knowns_rejected_first_are_those_with_the_lowest_scores(evaluation: Path) -> None:
    found = rejected_knowns(str(evaluation), "ghost", NAMES, "x")
    assert found is not None
    assert found.items[0].picture.key == "red/0.png"
    assert "score −∞" in found.items[0].picture.note
    assert [item.picture.key for item in found.items[1:3]] == ["blue/9.png", "red/8.png"]
    assert all(item.picture.jpeg for item in found.items)


def test_galleries_are_of_evaluations_made_from_images(evaluation: Path, tmp_path: Path) -> None:
    found = galleries({"grey": str(evaluation), "nowhere": str(tmp_path)}, "ghost", "x")
    assert [gallery.title for gallery in found] == ["Knowns rejected first", "Accepted with the highest scores: grey"]
    assert "classified as blue" in found[1].items[0].picture.note
    (tmp_path / "known" / "manifest.json").write_text('{"config": {"features": "a.npy"}}')
    assert galleries({"grey": str(evaluation)}, "ghost", "x") == []


def test_where_the_images_are_gone_keys_stand_alone(evaluation: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "images")
    found = accepted_unknowns(str(evaluation), "ghost", "grey", [], "x")
    assert found is not None
    assert all(item.picture.jpeg is None and item.picture.key for item in found.items)
    assert "cannot be reached" in found.caption
    (tmp_path / "known" / "manifest.json").write_text('{"config": {"features": "a.npy"}}')
    rejected = rejected_knowns(str(evaluation), "ghost", [], "x")
    assert rejected is not None
    assert rejected.items[0].picture.note.startswith("class 0")
    assert rejected_knowns(str(tmp_path), "ghost", [], "x") is None
