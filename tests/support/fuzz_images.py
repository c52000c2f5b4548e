"""Broken pictures, tars of pictures, and checkpoints."""

from __future__ import annotations

import io
import pickle
import random
import struct
import tarfile
import zipfile
from pathlib import Path

from support.fuzzing import NUMBERS, TEXTS, Reading, Variants, mutated_bytes
from support.raw_sources import picture

# Every format that is decoded, in the modes that its decoder treats differently.
_PICTURES = (
    ("RGB", "JPEG", {}),
    ("L", "JPEG", {}),
    ("CMYK", "JPEG", {}),
    ("RGB", "JPEG", {"progressive": True}),
    ("RGB", "PNG", {}),
    ("RGBA", "PNG", {}),
    ("P", "PNG", {}),
    ("I;16", "PNG", {}),
    ("RGB", "WEBP", {}),
    ("RGBA", "WEBP", {"lossless": True}),
    ("RGB", "BMP", {}),
    ("P", "GIF", {}),
    ("RGB", "TIFF", {}),
    ("RGB", "TIFF", {"compression": "tiff_adobe_deflate"}),
    ("L", "TIFF", {"compression": "tiff_lzw"}),
    ("1", "TIFF", {"compression": "group4"}),
    ("RGB", "PPM", {}),
    ("L", "PPM", {}),
)
_CLASSES = 5


def _pictures() -> list[bytes]:
    return [picture(number, mode, kind, **options) for number, (mode, kind, options) in enumerate(_PICTURES)]


def images(folder: Path) -> Variants:
    """One picture, decoded and cropped: it is an array of the right shape, or its failure is one line."""
    from ghost_ray.jobs.extract.decode import Preprocessing, ResizeAndCrop, prepare_image

    wanted = Preprocessing(ResizeAndCrop(36, 3, 32, 32), (32, 32, 3), (0.5,) * 3, (0.5,) * 3)
    originals = _pictures()
    for original in originals:
        assert not isinstance(prepare_image(wanted, original), str)

    def make(rng: random.Random) -> Reading:
        data = rng.choice(originals)
        sizes = 64 if rng.random() < 0.3 else len(data)  # they are in the first bytes
        data = mutated_bytes(data[:sizes], rng) + data[sizes:]
        return lambda: _refused_where_failed(prepare_image(wanted, data))

    return make


def _refused_where_failed(found: object) -> None:
    """A failure that is recorded is told like an error, so that the runner counts and checks it."""
    from ghost_ray.errors import InputError

    if isinstance(found, str):
        assert found
        assert found.isprintable(), found
        raise InputError("data", "", found)


def tars(folder: Path) -> Variants:
    """Shards: headers, sizes, names and labels that went wrong; nothing is read from outside."""
    from ghost_ray.errors import InputError
    from ghost_ray.sources import map_labels, open_source

    shard = folder / "shard.tar"
    contents = _pictures()[:6]
    numbers = (*map(str, NUMBERS), "9" * 5000, "0x10", "1e9", "-5", " 7", "٣")

    def make(rng: random.Random) -> Reading:
        kind = rng.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT))
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=kind, errors="surrogatepass") as tar:
            for number, content in enumerate(contents):
                for name, data in ((f"{number}.png", content), (f"{number}.cls", str(number % _CLASSES).encode())):
                    info = tarfile.TarInfo(name)
                    if rng.random() < 0.1:
                        text = rng.choice(TEXTS)
                        info.name = f"{text[:90]}.png" if kind == tarfile.USTAR_FORMAT else f"{text}.png"
                    if kind == tarfile.PAX_FORMAT and rng.random() < 0.2:
                        info.pax_headers = {rng.choice(("size", "path", "x")): rng.choice((*numbers, *TEXTS))}
                    if rng.random() < 0.05:
                        info.type = rng.choice((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE))
                        info.linkname = "/etc/passwd"
                    if name.endswith(".cls") and rng.random() < 0.2:
                        info.name = f"{number}.{rng.choice(('cls', 'json'))}"
                        data = rng.choice((*TEXTS, *numbers, '{"label": [', '{"label": 1e999}', "[" * 9000)).encode(
                            "utf-8", "surrogatepass"
                        )
                    info.size = len(data)
                    try:
                        tar.addfile(info, io.BytesIO(data))
                    except ValueError:  # the format cannot say it
                        tar.addfile(tarfile.TarInfo(f"{number}-other.png"))
        data = buffer.getvalue()
        if rng.random() < 0.5:
            data = _rotten_headers(data, rng)
        if rng.random() < 0.5:
            data = mutated_bytes(data, rng)
        shard.write_bytes(data)
        return read

    def read() -> None:
        source = open_source(str(shard))
        found = [image for scan in source.reader.scan(source.shards[0], bodies=True) for image in scan.images or ()]
        for image in [*source.reader.read(source.preview.items), *found]:
            assert image.key.isprintable(), image.key
            assert ".." not in image.key.split("/"), image.key
            assert (image.data is None) != (image.error is None)
        map_labels(source, _CLASSES).apply(source.preview.items["label"])
        if source.preview.failures:
            raise InputError("data", "", source.preview.failures[0].error)

    return make


def _rotten_headers(data: bytes, rng: random.Random) -> bytes:
    """Numbers of headers replaced, with the checksums as they must be."""
    content = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = 512 * rng.randrange(max(1, len(content) // 512))
        block = content[at : at + 512]
        if block[257:262] != b"ustar":
            continue
        size = rng.choice(NUMBERS)
        digits = rng.choice(
            (b"77777777777\0", b"-0000000001\0", b"9" * 12, b"\xff" * 12, b"\x80" + bytes(7) + b"\x7f" * 4)
        )
        block[124:136] = f"{size % 8**11:011o}\0".encode() if rng.random() < 0.6 and size > 0 else digits
        if rng.random() < 0.3:
            block[156:157] = rng.choice((b"L", b"x", b"g", b"0", b"7", b"S", b"\0", b"K"))
        block[148:156] = b" " * 8
        block[148:156] = f"{sum(block):06o}\0 ".encode()
        content[at : at + 512] = block
    return bytes(content)


def weights(folder: Path) -> Variants:
    """PyTorch's checkpoints, of both formats, as a network's weights and as arrays to import."""
    import torch

    from ghost_ray.backbone import load_backbone
    from ghost_ray.jobs.importing.readers import open_arrays
    from ghost_ray.jobs.importing.workspace import Workspace
    from support.networks import Small

    where = folder / "weights.pth"
    torch.save(Small().state_dict(), folder / "zip.pth")
    torch.save(Small().state_dict(), folder / "old.pth", _use_new_zipfile_serialization=False)
    originals = [(folder / name).read_bytes() for name in ("zip.pth", "old.pth")]

    def as_weights() -> None:
        load_backbone("support.networks:small", str(where), device="cpu")

    def as_arrays() -> None:
        for entry in open_arrays(str(where), "features", Workspace(str(folder / "scratch"))).entries:
            entry.describe()

    for original in originals:
        where.write_bytes(original)
        as_weights()
        as_arrays()

    def make(rng: random.Random) -> Reading:
        data = rng.choice(originals)
        rotten = _rotten_archive if data is originals[0] and rng.random() < 0.6 else mutated_bytes
        where.write_bytes(rotten(data, rng))
        return rng.choice((as_weights, as_arrays))

    return make


def _rotten_archive(data: bytes, rng: random.Random) -> bytes:
    """An archive whose records went wrong, and whose own tables are right."""
    buffer = io.BytesIO()
    packed = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", packed) as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("data.pkl"):
                content = _rotten_pickle(content, rng)
            elif rng.random() < 0.1:
                content = rng.choice((b"", content[:-4], content * 3, mutated_bytes(content, rng)))
            if rng.random() < 0.97:
                new.writestr(name, content)
    return buffer.getvalue()


def _rotten_pickle(content: bytes, rng: random.Random) -> bytes:
    match rng.randrange(4):
        case 0:
            return mutated_bytes(content, rng, 3)
        case 1:  # sizes, strides and offsets are short numbers
            places = [at for at in range(len(content) - 1) if content[at : at + 1] == b"K"]
            at = rng.choice(places)
            number = rng.choice((0, 255, 65535, 2**31 - 1, 2**40))
            coded = b"\x8a\x08" + struct.pack("<q", number)
            return content[:at] + coded + content[at + 2 :]
        case 2:
            return pickle.dumps(rng.choice((TEXTS, NUMBERS, {"head.weight": [1] * 9}, [[]] * 9, None)), protocol=2)
        case _:
            return content.replace(b"torch._utils", rng.choice((b"torch._utilx", b"builtins\nevalx"[:12])), 1)
