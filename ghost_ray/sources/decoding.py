"""Encoded bytes → RGB picture, as timm's own loading does it."""

from __future__ import annotations

import io

from PIL import Image, TiffImagePlugin, UnidentifiedImageError

from ghost_ray.errors import one_line

# What the suffixes of images stand for; JPEG includes MPO. Of Pillow's other formats, some open their content with all
# formats again, PostScript among them, which is a program that Pillow hands to Ghostscript.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")

# A picture of the most pixels takes up to 760 MiB while it is decoded. Decoders that make copies of their own would
# take more than 1 GiB: WebP's keeps two canvases and gives a third.
_COPIES = {"WEBP": 2}
_TILE_WIDTH, _TILE_LENGTH = 322, 323  # tags of TIFF; a tile is unpacked whole, however small the picture


class DecodeError(ValueError):
    """The bytes are not an image; the message is one line."""


def decode(data: bytes) -> Image.Image:
    """The picture in `data` as RGB.

    The same as timm's ImageDataset: ``Image.open(…).convert('RGB')``. That is, EXIF rotation is not applied, an
    animation gives its first frame, and CMYK, grey, 16-bit and palette pictures are converted the way Pillow does.
    Pictures with more pixels than `PIL.Image.MAX_IMAGE_PIXELS`, or half of that as WebP, are refused before their
    pixels are unpacked.

    Raises
    ------
    DecodeError
        With the reason in one line.
    """
    if not data:
        raise DecodeError("the file is empty")
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as picture:
            _refuse_bombs(picture)
            return picture.convert("RGB")
    except DecodeError:
        raise
    except UnidentifiedImageError:
        raise DecodeError(f"not a picture in any format that is read ({', '.join(_FORMATS)})") from None
    except Exception as error:  # Pillow's decoders raise almost any exception on damaged data
        raise DecodeError(one_line(error) or type(error).__name__) from error


def _refuse_bombs(picture: Image.Image) -> None:
    width, height = picture.size
    if not width or not height:
        raise DecodeError(f"the picture is {width}×{height} pixels")
    limit = Image.MAX_IMAGE_PIXELS
    if limit is None:
        return
    limit //= _COPIES.get(picture.format or "", 1)
    if width * height > limit:
        raise DecodeError(f"decompression bomb: {width}×{height} pixels, more than {limit:,}")
    if isinstance(picture, TiffImagePlugin.TiffImageFile):
        across, down = (_size(picture.tag_v2.get(tag)) for tag in (_TILE_WIDTH, _TILE_LENGTH))
        if across * down > limit:
            raise DecodeError(f"decompression bomb: tiles of {across}×{down} pixels, more than {limit:,}")


def _size(value: object) -> int:
    return value if isinstance(value, int) else 0
