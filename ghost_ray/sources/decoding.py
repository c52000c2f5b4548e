"""Encoded bytes → RGB picture, as timm's own loading does it."""

from __future__ import annotations

import io

from PIL import Image, UnidentifiedImageError

from ghost_ray.errors import one_line

# What the suffixes of images stand for; JPEG includes MPO. Of Pillow's other formats, some open their content with all
# formats again, PostScript among them, which is a program that Pillow hands to Ghostscript.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")


class DecodeError(ValueError):
    """The bytes are not an image; the message is one line."""


def decode(data: bytes) -> Image.Image:
    """The picture in `data` as RGB.

    The same as timm's ImageDataset: ``Image.open(…).convert('RGB')``. That is, EXIF rotation is not applied, an
    animation gives its first frame, and CMYK, grey, 16-bit and palette pictures are converted the way Pillow does.
    Pictures with more pixels than `PIL.Image.MAX_IMAGE_PIXELS` are refused before their pixels are unpacked.

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
    if limit is not None and width * height > limit:
        raise DecodeError(f"decompression bomb: {width}×{height} pixels, more than {limit:,}")
