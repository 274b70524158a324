# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: encoded images, which the host decodes with Pillow (``R.image.decode``)."""

from __future__ import annotations

import importlib.util

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import dtype_of, ndim_of
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.ir import Expr

FORMATS = ("RGB", "BGR", "Grayscale")


@onnx_op("ImageDecoder", since=20)
def image_decoder(ctx: Context, encoded_stream: Expr, *, pixel_format: str = "RGB") -> Expr:
    if importlib.util.find_spec("PIL") is None:
        raise Unsupported("it needs Pillow, which is not installed", "pip install pillow")
    if (dtype_of(encoded_stream), ndim_of(encoded_stream)) != ("uint8", 1):
        raise ValueError(
            f"the encoded image is {encoded_stream.struct_info}, not bytes in a vector"
        )
    choice(pixel_format, FORMATS, "pixel_format")
    channels = 1 if pixel_format == "Grayscale" else 3
    return ctx.pinned(R.image.decode(encoded_stream, pixel_format), [None, None, channels])
