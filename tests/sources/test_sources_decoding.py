"""Pictures of every odd make are decoded as timm's own loading would; what is none says so."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PILImage
from support.raw_sources import picture

from ghost_ray.sources import DecodeError, decode


def timm_decode(data: bytes, tmp_path: Path) -> np.ndarray:
    from timm.data import ImageDataset

    (tmp_path / "class").mkdir(exist_ok=True)
    (tmp_path / "class" / "one.png").write_bytes(data)  # the name's ending does not matter to Pillow
    return np.asarray(ImageDataset(str(tmp_path))[0][0])


def exif_rotated() -> bytes:
    exif = PILImage.Exif()
    exif[0x0112] = 6
    return picture(1, format="JPEG", exif=exif)


def sixteen_bit() -> bytes:
    buffer = io.BytesIO()
    PILImage.fromarray(np.arange(300, dtype=np.uint16).reshape(15, 20) * 200).save(buffer, "PNG")
    return buffer.getvalue()


def transparent_palette() -> bytes:
    buffer = io.BytesIO()
    PILImage.open(io.BytesIO(picture(2))).convert("P").save(buffer, "PNG", transparency=3)
    return buffer.getvalue()


def animated(format: str) -> bytes:
    frames = [PILImage.open(io.BytesIO(picture(number))) for number in range(3)]
    buffer = io.BytesIO()
    frames[0].save(buffer, format, save_all=True, append_images=frames[1:])
    return buffer.getvalue()


PICTURES = {
    "rgb": picture(0),
    "jpeg": picture(0, format="JPEG"),
    "cmyk": picture(0, "CMYK", "JPEG"),
    "grey": picture(0, "L"),
    "grey with alpha": picture(0, "LA"),
    "alpha": picture(0, "RGBA"),
    "bilevel": picture(0, "1"),
    "16 bit": sixteen_bit(),
    "palette with transparency": transparent_palette(),
    "exif": exif_rotated(),
    "gif": animated("GIF"),
    "apng": animated("PNG"),
    "webp": animated("WEBP"),
    "tiff": picture(0, format="TIFF"),
    "bmp": picture(0, format="BMP"),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_decoded_as_timm_would(kind: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = timm_decode(PICTURES[kind], tmp_path)
        found = decode(PICTURES[kind])
    assert found.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(found), expected)


def zero_sized() -> bytes:
    return b"GIF89a\x00\x00\x00\x00\x00\x00\x00,\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00;"


def bomb(width: int) -> bytes:
    """A small PNG whose header claims a huge picture."""
    import struct
    import zlib

    header = struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    body = struct.pack(">I", len(header)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return b"\x89PNG\r\n\x1a\n" + body + b"\x00\x00\x00\x00IEND\xaeB`\x82"


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n"


def in_iptc(content: bytes) -> bytes:
    """A file of Pillow's format IPTC, which opens its content with all formats again."""

    def field(record: int, number: int, data: bytes) -> bytes:
        return bytes((0x1C, record, number)) + len(data).to_bytes(2, "big") + data

    size = (10).to_bytes(2, "big")
    head = field(3, 20, size) + field(3, 30, size) + field(3, 60, b"\x01\x00") + field(3, 120, b"\x05")
    return head + field(8, 10, content)


BROKEN = {
    "empty": (b"", "the file is empty"),
    "text": (b"this is not a picture at all", "not a picture in any format"),
    "truncated": (picture(0, format="JPEG")[:-200], "Truncated"),
    "truncated in the middle": (picture(0, format="BMP")[:-200], "truncated"),
    "zero-sized": (zero_sized(), "pixels|not a picture"),
    "bomb": (bomb(30000), "decompression bomb|exceeds limit"),
    "bomb that Pillow only warns of": (bomb(10000), "decompression bomb: 10000×10000"),
    "postscript": (POSTSCRIPT, "not a picture"),
    "postscript in another format": (in_iptc(POSTSCRIPT), "not a picture in any format that is read"),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_what_is_no_picture(kind: str) -> None:
    data, reason = BROKEN[kind]
    with pytest.raises(DecodeError, match=reason) as caught:
        decode(data)
    assert "\n" not in str(caught.value)
    assert "0x" not in str(caught.value)  # the same file fails with the same words every time


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(PICTURES)), st.data())
@pytest.mark.filterwarnings("ignore")
def test_rotten_bytes_decode_or_fail_with_one_line(kind: str, draws) -> None:
    data = bytearray(PICTURES[kind])
    for _ in range(draws.draw(st.integers(1, 6))):
        data[draws.draw(st.integers(0, len(data) - 1))] = draws.draw(st.integers(0, 255))
    shortened = bytes(data[: draws.draw(st.integers(0, len(data)))])
    try:
        outcome = decode(shortened).mode
    except DecodeError as error:
        outcome = str(error)
    assert outcome
    assert "\n" not in outcome
