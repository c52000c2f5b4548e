"""Small inputs that ask for much memory or time, and what reading each costs.

A run is one process, so that its memory is its own: ``PYTHONPATH=tests python -m support.bombs webp-canvas``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from support.fuzzing import LIMIT_SECONDS, Reading, memory, time_limit
from support.raw_sources import picture
from support.stores import Toy, forget_digests, write_store

# Writes the bomb, reads a harmless one so that imports do not count, and gives the call that reads the bomb. What it
# returns are the failures that were recorded; an error is what a command would say.
Bomb = Callable[[Path], Reading]
_MIB = 1 << 20


def _weights(folder: Path, change: Callable[[dict[str, Any]], None]) -> Reading:
    import timm
    import torch

    from ghost_ray.backbone import load_backbone

    state = timm.create_model("test_resnet", num_classes=4).state_dict()
    where = str(folder / "weights.pth")
    torch.save(state, where)
    load_backbone("test_resnet", where, device="cpu")
    change(state)
    torch.save(state, where)
    return lambda: load_backbone("test_resnet", where, device="cpu")


def stride_zero(folder: Path) -> Reading:
    """1.2 million classes, all of them one number."""

    def change(state: dict[str, Any]) -> None:
        import torch

        state["fc.weight"] = torch.zeros(1).expand(1_200_000, state["fc.weight"].shape[1])
        state["fc.bias"] = torch.zeros(1).expand(1_200_000)

    return _weights(folder, change)


def thin_head(folder: Path) -> Reading:
    """Ten million classes of one byte each, which the network would multiply by its dimensions."""

    def change(state: dict[str, Any]) -> None:
        import torch

        state["fc.weight"] = torch.zeros(10_000_000, 1, dtype=torch.int8)
        state["fc.bias"] = torch.zeros(1).expand(1)

    return _weights(folder, change)


def deflated_weights(folder: Path) -> Reading:
    """1.2 gigabytes of zeros in five megabytes."""

    def change(state: dict[str, Any]) -> None:
        import torch

        state["more"] = torch.zeros(300_000_000)

    read = _weights(folder, change)
    plain, packed = folder / "weights.pth", folder / "packed.pth"
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for name in old.namelist():
            with old.open(name) as source, new.open(name, "w", force_zip64=True) as member:
                shutil.copyfileobj(source, member, _MIB)
    packed.replace(plain)
    return read


def _manifest(folder: Path, field: str, values: str) -> Reading:
    from ghost_ray.store import Store

    rng = np.random.default_rng(0)
    toy = Toy.make(rng)
    write_store(folder / "store", *toy.known(rng, 20), toy)
    forget_digests(folder / "store")
    Store.open(str(folder / "store"))
    where = folder / "store" / "manifest.json"
    content = json.loads(where.read_bytes())
    content.pop("seal", None)
    content[field] = "HERE"
    where.write_text(json.dumps(content).replace('"HERE"', values))
    return lambda: Store.open(str(folder / "store"))


def wrong_types(folder: Path) -> Reading:
    """A manifest of 4 MB in which two million notes are numbers."""
    return _manifest(folder, "notes", "[" + "0," * 2_000_000 + "0]")


def wrong_types_within_the_limit(folder: Path) -> Reading:
    """As many wrong values as are looked at."""
    return _manifest(folder, "notes", "[" + "0," * 990_000 + "0]")


def valid_manifest(folder: Path) -> Reading:
    """A manifest of 60 MB in which nothing is wrong."""
    return _manifest(folder, "data", "[" + ",".join(['{"uri": "x", "kind": "folder"}'] * 1_900_000) + "]")


def valid_manifest_within_the_limit(folder: Path) -> Reading:
    """As many entries as are taken."""
    return _manifest(folder, "data", "[" + ",".join(['{"uri": "x", "kind": "folder"}'] * 330_000) + "]")


def huge_network(folder: Path) -> Reading:
    """A store whose manifest says 4,000 classes of a million dimensions: 64 GB of statistics."""
    import resource

    from ghost_ray.config import FitConfig
    from ghost_ray.jobs.fit import run

    _manifest(folder, "class_names", "null")
    fit = FitConfig(store=str(folder / "store"), out=str(folder / "model"), overwrite=True)
    where = folder / "store" / "manifest.json"
    with contextlib.redirect_stderr(io.StringIO()):
        run(fit)
    content = json.loads(where.read_bytes())
    content["network"] |= {"classes": 4000, "dimensions": 1_000_000}
    where.write_text(json.dumps(content))
    limit = memory("VmSize") + (16 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def read() -> None:
        with contextlib.redirect_stderr(io.StringIO()):
            run(fit)

    return read


def packed_rows(folder: Path) -> Reading:
    """A row file in which 1.6 gigabytes of labels are compressed to almost nothing."""
    import pyarrow as pa

    from ghost_ray.store import Store

    read = _manifest(folder, "files", "null")
    read()
    rows = pa.table({"label": pa.array(np.zeros(400_000_000, np.int32))})
    where = next((folder / "store" / "rows").iterdir())
    with pa.ipc.new_file(str(where), rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    return lambda: Store.open(str(folder / "store"))


def _failures(uri: str) -> list[str]:
    """What would be recorded of the images at a place."""
    from ghost_ray.sources import DecodeError, decode, open_source

    source = open_source(uri)
    found = [failure.error for failure in source.preview.failures]
    for image in source.reader.read(source.preview.items):
        try:
            if image.data is None:
                raise DecodeError(image.error)
            decode(image.data)
        except DecodeError as error:
            found.append(str(error))
    return found


def _among_images(folder: Path) -> Path:
    (folder / "images").mkdir()
    (folder / "images" / "fine.png").write_bytes(picture(1))
    assert not _failures(str(folder / "images"))
    return folder / "images"


def links(folder: Path) -> Reading:
    """Ten folders, each with a link to every other: as many ways through them as there are orders."""
    images = _among_images(folder)
    places = [images / f"class{number}" for number in range(10)]
    for place in places:
        place.mkdir()
        (place / "image.png").write_bytes(picture(1))
    for place in places:
        for other in places:
            if other != place:
                (place / f"to-{other.name}").symlink_to(other)
    return lambda: _failures(str(images))


def encoded_image(folder: Path) -> Reading:
    """A file of 2 GiB that has no block on the disk."""
    images = _among_images(folder)
    with (images / "huge.jpg").open("wb") as handle:
        handle.truncate(2 << 30)
    return lambda: _failures(str(images))


def image_in_a_tar(folder: Path) -> Reading:
    """The same as a member of a tar, as its listing and as its bodies."""
    from ghost_ray.sources import open_source

    _among_images(folder)
    info = tarfile.TarInfo("huge.jpg")
    info.size = 2 << 30
    shard = folder / "shard.tar"
    with shard.open("wb") as handle:
        handle.write(info.tobuf())
        handle.truncate(512 + info.size)

    def read() -> list[str]:
        source = open_source(str(shard))
        bodies = [image for scan in source.reader.scan(source.shards[0], bodies=True) for image in scan.images or ()]
        return _failures(str(shard)) + [image.error or "" for image in bodies]

    return read


def webp_canvas(folder: Path) -> Reading:
    """A WebP within Pillow's limit of pixels, of which its decoder keeps several copies."""
    from PIL import Image

    images = _among_images(folder)
    Image.new("RGB", (16383, 5400)).save(images / "canvas.webp", quality=1, method=0)
    return lambda: _failures(str(images))


def webp_canvas_within_the_limit(folder: Path) -> Reading:
    """The largest WebP that is decoded."""
    from PIL import Image

    images = _among_images(folder)
    Image.new("RGBA", (16383, 2700)).save(images / "canvas.webp", quality=1, method=0)

    def read() -> list[str]:
        assert not _failures(str(images))
        return ["decoded"]

    return read


def tiff_tile(folder: Path) -> Reading:
    """A picture of 16×16 pixels in one tile of 400 million."""
    images = _among_images(folder)
    (images / "tile.tif").write_bytes(_tiled(20_000, 20_000))
    return lambda: _failures(str(images))


def _tiled(width: int, height: int) -> bytes:
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(width)) for _ in range(height)) + packer.flush()
    tags = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: width, 323: height, 324: 0, 325: len(packed)}
    tags[324] = 8 + 2 + 12 * len(tags) + 4
    entries = b"".join(
        tag.to_bytes(2, "little") + (4).to_bytes(2, "little") + (1).to_bytes(4, "little") + value.to_bytes(4, "little")
        for tag, value in tags.items()
    )
    return b"II*\0\x08\0\0\0" + len(tags).to_bytes(2, "little") + entries + bytes(4) + packed


def long_line(folder: Path) -> Reading:
    """A picture of one line, which is made as high as the network wants."""
    from ghost_ray.jobs.extract.decode import Preprocessing, ResizeAndCrop, prepare_image

    wanted = Preprocessing(ResizeAndCrop(256, 3, 224, 224), (224, 224, 3), (0.5,) * 3, (0.5,) * 3)
    assert not isinstance(prepare_image(wanted, picture(1)), str)
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (65_000, 1)).save(buffer, "PNG")
    return lambda: [str(prepare_image(wanted, buffer.getvalue()))]


def _import(folder: Path, write: Callable[[Path], None]) -> Reading:
    from ghost_ray.config import ImportConfig
    from ghost_ray.jobs.importing import run

    rng = np.random.default_rng(0)
    np.save(folder / "logits.npy", rng.normal(size=(60, 4)).astype(np.float32))
    np.savez_compressed(folder / "features.npz", features=rng.normal(size=(60, 8)))

    def read() -> list[str]:
        config = ImportConfig(
            features=str(folder / "features.npz"),
            logits=str(folder / "logits.npy"),
            unknown=True,
            out=str(folder / "store"),
            overwrite=True,
        )
        with contextlib.redirect_stderr(io.StringIO()):
            run(config)
        return ["imported"]

    read()
    write(folder / "features.npz")
    return read


def _npz(where: Path, header: dict[str, Any], more: int) -> None:
    """An archive whose member has so many MiB after the numbers of its header."""
    with zipfile.ZipFile(where, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, _member(archive) as member:
        np.lib.format.write_array_header_2_0(member, header)
        for _ in range(more):
            member.write(bytes(_MIB))


def _member(archive: zipfile.ZipFile) -> IO[bytes]:
    return archive.open("features.npy", "w", force_zip64=True)


def npz_member(folder: Path) -> Reading:
    """A member of 4 GiB whose header describes 60 rows of 8; a disk of 1 GiB is enough for it."""
    import resource

    read = _import(folder, lambda where: _npz(where, {"descr": "<f8", "fortran_order": False, "shape": (60, 8)}, 4096))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    return read


def npz_header(folder: Path) -> Reading:
    """A header that says that it is 2 GiB long, and is."""

    def write(where: Path) -> None:
        with zipfile.ZipFile(where, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, _member(archive) as member:
            member.write(b"\x93NUMPY\x02\x00" + (2 << 30).to_bytes(4, "little"))
            for _ in range(2048):
                member.write(b" " * _MIB)

    return _import(folder, write)


def no_columns(folder: Path) -> Reading:
    """Rows without a number."""
    return _import(folder, lambda where: np.savez_compressed(where, features=np.empty((60, 0))))


def pax_size(folder: Path) -> Reading:
    """A tar whose first member has a size of 5,000 digits."""
    return _pax(folder, {"size": "9" * 5000})


def pax_records(folder: Path) -> Reading:
    """A header of 1 MB with as many records as fit into it."""
    return _pax(folder, {f"{number:x}": "" for number in range(100_000)})


def pax_digits(folder: Path) -> Reading:
    """A header of 1 MB in which every record could be as long as the header."""
    return _pax(folder, {"digits": "1" * (_MIB - 30)})


def pax_keywords(folder: Path) -> Reading:
    """A header of 1 MB with records of two bytes, whose keywords would all reach to its end."""
    return _own_headers(folder, tarfile.XHDTYPE, b"2 " * (_MIB // 2 - 1) + b"=", 1)


def pax_chain(folder: Path) -> Reading:
    """Headers before headers, 20,000 deep."""
    return _own_headers(folder, tarfile.XHDTYPE, b"30 mtime=1700000000.123456789\n", 20_000)


def long_name(folder: Path) -> Reading:
    """A name that says it is 8 GiB long."""
    return _own_headers(folder, tarfile.GNUTYPE_LONGNAME, b"x" * 512, 1, 8 << 30)


def negative_size(folder: Path) -> Reading:
    """A member that ends before it begins."""
    return _own_headers(folder, tarfile.CONTTYPE, b"", 1, -10240)


def _own_headers(folder: Path, kind: bytes, body: bytes, count: int, size: int | None = None) -> Reading:
    """A tar in which headers of a kind, with any size, are before an image."""
    _among_images(folder)
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, len(body) if size is None else size
    image, data = tarfile.TarInfo("image.png"), b"not a picture"
    image.size = len(data)
    before = header.tobuf(tarfile.GNU_FORMAT) + body + bytes(-len(body) % 512)
    with (folder / "shard.tar").open("wb") as tar:
        for _ in range(count):
            tar.write(before)
        tar.write(image.tobuf(tarfile.GNU_FORMAT) + data + bytes(512 - len(data) + 1024))
    return lambda: _failures(str(folder / "shard.tar"))


def _pax(folder: Path, headers: dict[str, str]) -> Reading:
    _among_images(folder)
    shard = folder / "shard.tar"
    info, data = tarfile.TarInfo("image.png"), b"not a picture"
    info.size, info.pax_headers = len(data), headers
    with tarfile.open(shard, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(data))
    return lambda: _failures(str(shard))


# Each with what is said about it.
BOMBS: dict[str, tuple[Bomb, str]] = {
    "stride-zero": (stride_zero, "they are not in the file"),
    "thin-head": (thin_head, "asks for a layer of 10000000×"),
    "deflated-weights": (deflated_weights, "is packed"),
    "wrong-types": (wrong_types, "holds more than the 1,000,000 values allowed"),
    "wrong-types-within-the-limit": (wrong_types_within_the_limit, "990,001 of its values are wrong"),
    "valid-manifest": (valid_manifest, "more than the 33,554,432 allowed"),
    "valid-manifest-within-the-limit": (valid_manifest_within_the_limit, "was read"),
    "huge-network": (huge_network, "expected float32 lists of 1000000"),
    "packed-rows": (packed_rows, "its record batches are compressed"),
    "links": (links, "a link that was followed before"),
    "encoded-image": (encoded_image, "more than the 134,217,728 that an image may have"),
    "image-in-a-tar": (image_in_a_tar, "more than the 134,217,728 that an image may have"),
    "webp-canvas": (webp_canvas, "decompression bomb"),
    "webp-canvas-within-the-limit": (webp_canvas_within_the_limit, "decoded"),
    "tiff-tile": (tiff_tile, "decompression bomb: tiles of 20000×20000 pixels"),
    "long-line": (long_line, "65000×1 pixels would be resized to 16640000×256"),
    "npz-member": (npz_member, "imported"),
    "npz-header": (npz_header, "is a NumPy archive"),
    "no-columns": (no_columns, "expected 1 to 1,000,000 columns"),
    "pax-size": (pax_size, "the tar ends inside this member"),
    "pax-records": (pax_records, "not a picture"),
    "pax-digits": (pax_digits, "not a picture"),
    "pax-keywords": (pax_keywords, "not a picture"),
    "pax-chain": (pax_chain, "not a picture"),
    "long-name": (long_name, "the tar ends inside this member"),
    "negative-size": (negative_size, "a damaged header"),
}


def run(bomb: Bomb) -> dict[str, Any]:
    """What reading it says and costs."""
    from ghost_ray.errors import InputError

    with tempfile.TemporaryDirectory(prefix="bomb-") as folder:
        read = bomb(Path(folder))
        Path("/proc/self/clear_refs").write_text("5")  # the highest memory is counted from here
        before, begin = memory("VmRSS"), time.process_time()
        try:
            with time_limit(6 * LIMIT_SECONDS):  # beyond the limit, to say by how much
                found = read()
            said = found if isinstance(found, list) else ["was read"]
        except InputError as error:
            said = [str(error)]
        return {
            "said": sorted(set(said)),
            "seconds": round(time.process_time() - begin, 3),
            "grown_bytes": memory("VmHWM") - before,
        }


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    json.dump(run(BOMBS[sys.argv[1]][0]), sys.stdout)
