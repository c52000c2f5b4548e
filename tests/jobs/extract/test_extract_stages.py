"""The stages of an extraction by themselves: the number of images per block, and the transform in two."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from timm.data import create_transform, resolve_model_data_config

from ghost_ray.jobs.extract.blocks import BlockWriter
from ghost_ray.jobs.extract.decode import Decode, split_transform
from ghost_ray.jobs.extract.embed import Embed
from ghost_ray.jobs.extract.job import stream_on_ray
from ghost_ray.jobs.extract.listing import MAX_BLOCK_ROWS, ListTask, rows_per_block


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
    assert rows <= max(2 * batch, MAX_BLOCK_ROWS)
    assert rows <= 2 * batch or rows * size <= 32 << 20
    if images >= 4 * workers * 2 * batch:
        assert rows >= 2 * batch


@pytest.mark.parametrize("sent", [ListTask, Decode, Embed, BlockWriter, stream_on_ray])
def test_what_workers_and_the_driver_import_is_free_of_torch(sent: type) -> None:
    """Each would take seconds and hundreds of megabytes for it, before the first image."""
    look = f"import sys, {sent.__module__}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0
