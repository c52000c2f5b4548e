"""The stages of an extraction by themselves: how the listing is cut into blocks, and the transform in two."""

from __future__ import annotations

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from timm.data import create_transform, resolve_model_data_config

from ghost_ray.extract.decoding import ItemBlocks
from ghost_ray.extract.pipeline import MAX_BLOCK_ROWS, rows_per_block
from ghost_ray.extract.pixels import split_transform


class TestCuttingTheTransform:
    @pytest.mark.parametrize("name", ["test_vit", "test_convnext", "test_efficientnet"])
    def test_same_floats(self, name: str, rng: np.random.Generator) -> None:
        model = timm.create_model(name)
        transform = create_transform(**resolve_model_data_config(model), is_training=False)
        cut = split_transform(transform)
        assert cut.dtype == np.uint8
        for height, width in ((91, 340), (500, 200), (224, 224)):
            picture = Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8))
            finished = cut.finish(torch.from_numpy(cut.prepare(picture).copy())[None])[0]
            assert torch.equal(finished, transform(picture))

    def test_a_foreign_transform_stays_whole(self) -> None:
        cut = split_transform(lambda picture: torch.full((3, 8, 8), float(picture.size[0])))
        assert cut.dtype == np.float32
        prepared = cut.prepare(Image.new("RGB", (20, 30)))
        assert (prepared == 20).all()
        assert torch.equal(cut.finish(torch.from_numpy(prepared)[None]), torch.full((1, 3, 8, 8), 20.0))


@given(
    images=st.integers(1, 10**7),
    batch=st.integers(1, 4096),
    size=st.integers(1, 1 << 24),
    workers=st.integers(1, 512),
)
def test_blocks_are_whole_batches_and_bounded(images: int, batch: int, size: int, workers: int) -> None:
    rows = rows_per_block(images, batch, size, workers)
    assert rows % batch == 0
    assert rows <= max(batch, MAX_BLOCK_ROWS)
    assert rows == batch or rows * size <= 32 << 20


def test_pickled_read_tasks_are_small() -> None:
    items = pa.table({"key": [f"{i:040d}" for i in range(20_000)], "label": np.zeros(20_000, np.int32)})
    tasks = ItemBlocks(items, 100).get_read_tasks(1)
    assert len(tasks) == 200
    assert len(cloudpickle.dumps(tasks[150])) < 20_000
    assert next(iter(tasks[150]()))["key"].to_pylist() == items["key"].slice(15_000, 100).to_pylist()
