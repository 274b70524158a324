"""How the host runs ``relax.image.decode``: with Pillow, an optional library."""

from __future__ import annotations

import io

import numpy as np

from relax2xla.errors import CallError, RunError
from relax2xla.vm.host.operators import Array, host

# Pillow's names of the formats that ONNX lists; no other decoder reads what a caller gives.
FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
# A small file may say that it holds any number of pixels.
PIXELS = 1 << 28


@host("relax.image.decode")
def decode(encoded: Array, pixel_format: str = "RGB") -> Array:
    """(height, width, channels), uint8. CallError for what is no image, or too large a one."""
    try:
        from PIL import Image
    except ImportError as e:
        raise RunError(
            "image.decode needs Pillow, which is not installed; pip install pillow"
        ) from e
    try:
        with Image.open(io.BytesIO(encoded.tobytes()), formats=FORMATS) as image:
            if image.width * image.height > PIXELS:
                raise CallError(
                    f"the image has {image.width} x {image.height} pixels; {PIXELS} are the limit"
                )
            pixels = np.asarray(image.convert("L" if pixel_format == "Grayscale" else "RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as e:
        if isinstance(e, CallError):
            raise
        raise CallError(f"the bytes are no image that Pillow can decode: {e}") from None
    if pixel_format == "Grayscale":
        return pixels[:, :, np.newaxis]
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels
