"""Images to extract: the same ones in every kind of source, and one of each damaged kind."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CLASSES = ("ant", "bee", "cat", "dog")


def write_folder(root: Path, per_class: int, size: tuple[int, int] = (48, 40)) -> list[str]:
    """``root/CLASS/NUMBER.jpg``, each class with its own colours; returns the keys."""
    rng = np.random.default_rng(7)
    keys = []
    for index, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(per_class):
            width, height = size[0] + number % 5, size[1] + number % 7
            pixels = rng.integers(0, 128, (height, width, 3)) + 32 * np.array([index, 3 - index, number % 4])
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{number:05d}.jpg", quality=90)
            keys.append(f"{name}/{number:05d}.jpg")
    return keys


def as_flat(folder: Path, keys: list[str], to: Path) -> dict[str, str]:
    """All images in one folder, without labels; returns its keys, each with the one it had."""
    to.mkdir()
    names = {key.replace("/", "_"): key for key in keys}
    for name, key in names.items():
        (to / name).write_bytes((folder / key).read_bytes())
    return names


def as_webdataset(folder: Path, keys: list[str], to: Path) -> dict[str, str]:
    """Two shards; labels as class numbers, in .cls in the first and in .json in the second."""
    to.mkdir()
    names = {}
    for shard in range(2):
        with tarfile.open(to / f"{shard:04d}.tar", "w") as tar:
            for key in keys[shard::2]:
                stem = key.replace("/", "_").removesuffix(".jpg")
                label = CLASSES.index(key.split("/")[0])
                sidecar = ("cls", str(label)) if shard == 0 else ("json", json.dumps({"label": label}))
                for suffix, content in (("jpg", (folder / key).read_bytes()), (sidecar[0], sidecar[1].encode())):
                    entry = tarfile.TarInfo(f"{stem}.{suffix}")
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
                names[f"{shard:04d}.tar/{stem}.jpg"] = key
    return names


def as_parquet(folder: Path, keys: list[str], to: Path) -> dict[str, str]:
    to.mkdir()
    names = {}
    for shard in range(2):
        part = keys[shard::2]
        images = [{"bytes": (folder / key).read_bytes(), "path": key} for key in part]
        labels = [CLASSES.index(key.split("/")[0]) for key in part]
        pq.write_table(pa.table({"image": images, "label": labels}), to / f"{shard:04d}.parquet", row_group_size=5)
        names |= {f"{shard:04d}.parquet/{row:08d}": key for row, key in enumerate(part)}
    return names


def as_list(folder: Path, keys: list[str], to: Path) -> dict[str, str]:
    lines = [f"{folder.name}/{key} {CLASSES.index(key.split('/')[0])}" for key in keys]
    to.write_text("\n".join(lines) + "\n")
    return {f"{folder.name}/{key}": key for key in keys}


def write_odd_but_good(folder: Path) -> list[str]:
    """Pictures that need converting, not refusing; returns their names."""
    rng = np.random.default_rng(3)
    grey = Image.fromarray(rng.integers(0, 256, (40, 50), np.uint8))
    colour = Image.fromarray(rng.integers(0, 256, (40, 50, 3), np.uint8))
    colour.convert("CMYK").save(folder / "cmyk.jpg")
    grey.save(folder / "grey.jpg")
    Image.fromarray(rng.integers(0, 65536, (40, 50), np.uint16)).save(folder / "sixteen.png")
    palette = colour.quantize(16)
    palette.save(folder / "palette.png", transparency=3)
    exif = Image.Exif()
    exif[0x0112] = 6
    colour.save(folder / "rotated.jpg", exif=exif)
    colour.save(folder / "animated.gif", save_all=True, append_images=[colour.rotate(90), colour.rotate(180)])
    return ["cmyk.jpg", "grey.jpg", "sixteen.png", "palette.png", "rotated.jpg", "animated.gif"]


def write_rotten(folder: Path) -> dict[str, str]:
    """One image of each damaged kind; returns name → stage at which it fails."""
    good = io.BytesIO()
    Image.fromarray(np.random.default_rng(5).integers(0, 256, (64, 64, 3), np.uint8)).save(good, "JPEG")
    (folder / "truncated.jpg").write_bytes(good.getvalue()[: len(good.getvalue()) // 2])
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.jpg").write_text("this is no picture\n")
    (folder / "zero_sized.png").write_bytes(_png_header(0, 10))
    (folder / "bomb.png").write_bytes(_png_header(40_000, 40_000))
    (folder / "unreadable.jpg").symlink_to(folder / "nowhere.jpg")
    decode = dict.fromkeys(["truncated.jpg", "empty.jpg", "text.jpg", "zero_sized.png", "bomb.png"], "decode")
    return {**decode, "unreadable.jpg": "read"}


def _png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
