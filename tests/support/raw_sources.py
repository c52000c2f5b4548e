"""Sources of every kind, written by hand from the same few pictures."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as PILImage

from ghost_ray.errors import InputError
from ghost_ray.sources import Source, map_labels, open_source

WNIDS = ["n01440764", "n02099601", "n03888257"]  # tench, golden retriever, parachute


PLACES = [0, 207, 701]


def picture(number: int, mode: str = "RGB", format: str = "PNG", **options: object) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    PILImage.fromarray(pixels).convert(mode).save(buffer, format, **options)
    return buffer.getvalue()


def images_of(count: int = 7, names: list[str] = WNIDS) -> list[tuple[str, str, bytes]]:
    return [(names[i % len(names)], f"{i:04d}.png", picture(i)) for i in range(count)]


def write_folder(root: Path, images: list[tuple[str, str, bytes]]) -> str:
    for label, name, data in images:
        (root / label).mkdir(parents=True, exist_ok=True)
        (root / label / name).write_bytes(data)
    return str(root)


def write_tar(path: Path, members: list[tuple[str, bytes]], format: int = tarfile.GNU_FORMAT) -> str:
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return str(path)


def tar_members(images: list[tuple[str, str, bytes]]) -> list[tuple[str, bytes]]:
    members = []
    for label, name, data in images:
        members += [(name, data), (name.replace(".png", ".cls"), str(PLACES[WNIDS.index(label)]).encode())]
    return members


def write_parquet(path: Path, images: list[tuple[str, str, bytes]], row_group_size: int = 3) -> str:
    table = pa.table(
        {
            "image": [{"bytes": data, "path": name} for _, name, data in images],
            "label": pa.array([PLACES[WNIDS.index(label)] for label, _, _ in images], pa.int64()),
        }
    )
    pq.write_table(table, path, row_group_size=row_group_size)
    return str(path)


def write_list(path: Path, root: str, images: list[tuple[str, str, bytes]]) -> tuple[str, str]:
    path.write_text("".join(f"{label}/{name} {PLACES[WNIDS.index(label)]}\n" for label, name, _ in images))
    return str(path), root


def content(source: Source) -> dict[str, bytes | None]:
    return {image.key: image.data for image in source.reader.read(source.preview.items)}


def labelled_bytes(source: Source, classes: int = 1000) -> set[tuple[int, bytes]]:
    items, by_key = source.preview.items, content(source)
    labels = map_labels(source, classes).apply(items["label"])
    return {(int(label), by_key[key]) for key, label in zip(items["key"].to_pylist(), labels, strict=True)}


def refusal(uri: object, **options: str) -> str:
    with pytest.raises(InputError) as caught:
        open_source(str(uri), **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
