"""An operator applied to a photograph, beside a convolution.

The last two input axes hold the photograph, scaled to their lengths. An axis before these two counts as channels and
repeats red, green and blue in turn; without channels the picture is grey. Along all earlier axes the photograph is
repeated. The output is shown as grey pictures, for the first few indices of its third-last axis. In each picture the
least value is black and the largest value is white.
"""

from __future__ import annotations

import base64
import io
from importlib.metadata import distribution
from itertools import product
from math import prod
from typing import Any, TypedDict

import numpy as np
from PIL import Image as Pixels

from syno_lab.codegen.nest import all_sizes
from syno_lab.codegen.reference import reference
from syno_lab.codegen.torch_weights import weight_stds
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.ir.operator import Operator
from syno_lab.panes import PHOTOS, WEIGHTS, Asked, read_image
from syno_lab.panes.data import Bitmap

Array = np.ndarray[Any, Any]
CREDITS = {
    "china": "china.jpg from scikit-learn's sample images: some rights reserved by danielbuechele (Flickr), "
    "Creative Commons BY 2.0; cut to a square and scaled",
    "flower": "flower.jpg from scikit-learn's sample images: attributed there to danielbuechele, from the Flickr page "
    "of vultilion, some rights reserved, Creative Commons BY 2.0; cut to a square and scaled",
    "own": "your own image; scaled",
}
_HOW = {
    "random": "The weights are normal random numbers, scaled so that the output varies as the input does.",
    "mean": "All weights are equal, so that each output element is the mean of what it reads, padding included.",
}
_SIDES = (96, 90, 84, 64, 60, 48, 120, 100)
_CHANNELS = (8, 4, 12, 16, 24, 32, 36, 48, 64, 6, 3, 2, 1)
_SHOWN = 4  # the number of shown output channels
_MOST_TERMS = 100_000_000
_MOST_PIXELS = 256  # the largest length of a picture, in pixels
_SEED = 1


class Applied(TypedDict):
    """The result of an operator on the photograph."""

    title: str
    pictures: list[Bitmap]


class Image(TypedDict):
    """A photograph and the results of the operator and conv2d; ``how`` describes sizes and weights in words."""

    photo: str
    weights: str
    credit: str
    how: str
    input: Bitmap
    outputs: list[Applied]


def image_pane(asked: Asked[Operator]) -> Image:
    """Return the photograph, and the outputs of the operator and of conv2d for it.

    The sizes are chosen for the picture: about 96 rows and columns, few channels, and the requested coefficients.
    Raises SpecError for an unknown photograph or kind of weights, an image of another shape, or sizes too large.
    """
    if asked.weights not in WEIGHTS:
        raise SpecError(f"weights: expected {' or '.join(WEIGHTS)}, found {quoted(asked.weights)}")
    photo = _photo(asked)
    operator = asked.operator
    bound = picture_binding(operator, asked.bound())
    shape = operator.input_sizes(bound)
    if len(shape) < 2:
        raise SpecError(f"the input has {len(shape)} axes: expected at least two, to hold a picture")
    terms = prod(c.size.at(bound) for c in (*operator.output, *operator.reductions))
    if max(terms, prod(shape)) > _MOST_TERMS:
        raise SpecError(
            f"too large to be computed for a picture: expected at most {_MOST_TERMS:,} terms, found {terms:,}"
        )
    x = as_input(photo, shape)
    own = _apply(operator, bound, x, asked)
    other, other_bound, window = _convolution(shape, operator.output_sizes(bound), bound)
    beside = _apply(other, other_bound, as_input(photo, other.input_sizes(other_bound)), asked)
    sizes = ", ".join(f"{name}={number}" for name, number in bound.items())
    return {
        "photo": asked.photo,
        "weights": asked.weights,
        "credit": CREDITS[asked.photo],
        "how": f"With {sizes}. {_HOW[asked.weights]}",
        "input": _picture(_grey_or_colour(x), f"the photograph {asked.photo}, as the input holds it"),
        "outputs": [
            {"title": asked.name, "pictures": _pictures(own, asked.name)},
            {"title": f"conv2d, {window} x {window}", "pictures": _pictures(beside, "conv2d")},
        ],
    }


def picture_binding(operator: Operator, base: dict[str, int]) -> dict[str, int]:
    """Return the sizes of variables for a picture: large in the last two input axes, 1 for batches, else small.

    Coefficients have the values in ``base``. Raises SpecError when no sizes fit.
    """
    symbols = operator.spec.symbols
    sizes, last = set(all_sizes(operator)), [c.size for c in operator.inputs[-2:]]
    fixed = {str(c.size) for c in operator.state.fixed}
    for side, channels in product(_SIDES, _CHANNELS):
        bound = {n: base[n] if n in symbols.coefficient else 1 if n in fixed else channels for n in symbols.names}
        for size in last:
            powers = size.factors
            variables = [n for n in symbols.primary if n in powers]
            if variables:
                small = prod(float(base[n]) ** powers.get(n, 0) for n in symbols.coefficient)
                number = round((side / small) ** (1 / sum(powers[n] for n in variables)))
                bound |= {n: max(number, 1) for n in variables}
        if all(size.is_integral(bound) for size in sizes):
            return bound
    raise SpecError("no sizes of a picture fit this operator's divisions: see it with other coefficients")


def _photo(asked: Asked[Operator]) -> Array:
    """Return the square photograph [rows, columns, 3] in 0..1."""
    if asked.photo not in PHOTOS:
        raise SpecError(f"photo: expected {', '.join(PHOTOS)}, found {quoted(asked.photo)}")
    if asked.photo == "own":
        return read_image(asked.image)
    # Importing scikit-learn takes seconds, and reading the photographs does not need the import.
    path = distribution("scikit-learn").locate_file(f"sklearn/datasets/images/{asked.photo}.jpg")
    sample = np.asarray(Pixels.open(str(path)))
    side = min(sample.shape[:2])
    top, left = ((length - side) // 2 for length in sample.shape[:2])
    return np.asarray(sample[top : top + side, left : left + side], dtype=np.float64) / 255.0


def as_input(photo: Array, shape: tuple[int, ...]) -> Array:
    """Return the photograph as an input of ``shape``, with mean 0 and deviation 1 in each channel."""
    rows, columns = shape[-2:]
    pixels = Pixels.fromarray((photo * 255.0).round().astype(np.uint8))
    scaled = np.asarray(pixels.resize((columns, rows), Pixels.Resampling.LANCZOS), dtype=np.float32) / 255.0
    colours = [scaled.mean(axis=2)] if len(shape) == 2 else [scaled[:, :, c % 3] for c in range(shape[-3])]
    planes = np.stack(colours)
    centred = planes - planes.mean(axis=(-2, -1), keepdims=True)
    deviation = planes.std(axis=(-2, -1), keepdims=True)
    scaled = centred / np.maximum(deviation, 1e-6)
    return np.ascontiguousarray(np.broadcast_to(scaled[0] if len(shape) == 2 else scaled, shape), dtype=np.float32)


def _convolution(
    shape: tuple[int, ...], out: tuple[int, ...], bound: dict[str, int]
) -> tuple[Operator, dict[str, int], int]:
    """Return a conv2d with the operator's channels and picture size, and the binding and the window of the conv2d."""
    from syno_lab.operators import conv2d

    operator = conv2d()
    window = bound.get("k_1", 3)
    channels = shape[-3] if len(shape) > 2 else 1
    outputs = out[-3] if len(out) > 2 else 1
    sizes = {"N": 1, "C_in": channels, "C_out": outputs, "H": shape[-2], "W": shape[-1], "k_1": window}
    return operator, operator.complete_binding(sizes), window


def _apply(operator: Operator, bound: dict[str, int], x: Array, asked: Asked[Operator]) -> Array:
    """Run an operator's loop nest in NumPy: pictures are small, and torch may be missing."""
    shapes = operator.weight_sizes(bound)
    if asked.weights == "random":
        generator = np.random.default_rng(_SEED)
        deviations = weight_stds(operator, bound)
        arrays = [generator.standard_normal(n) * deviation for n, deviation in zip(shapes, deviations, strict=True)]
    else:
        terms = prod(r.size.at(bound) for r in operator.reductions)
        arrays = [np.full(shape, terms ** (-1.0 / len(shapes))) for shape in shapes]
    weights = (array.astype(np.float32) for array in arrays)
    return reference(operator, x, *weights, binding=bound, should_stop=asked.should_stop)


def _pictures(y: Array, name: str) -> list[Bitmap]:
    flat = y.reshape((-1, *y.shape[-2:])) if y.ndim >= 2 else y.reshape(1, 1, -1)
    first = flat[: min(_SHOWN, y.shape[-3] if y.ndim > 2 else 1)]
    bitmaps = []
    for channel, plane in enumerate(first):
        low, high = float(plane.min()), float(plane.max())
        scaled = (plane - low) / (high - low) if high > low else np.zeros_like(plane)
        words = f"{name}, output channel {channel}: black is {low:.3g}, white is {high:.3g}"
        bitmaps.append(_picture(scaled, words))
    return bitmaps


def _grey_or_colour(x: Array) -> Array:
    """Return the first planes of the input as a picture in 0..1."""
    planes = x.reshape((-1, *x.shape[-2:]))[:3]
    picture = np.moveaxis(planes, 0, -1) if len(planes) == 3 and x.shape[-3] >= 3 else planes[0]
    low, high = picture.min(), picture.max()
    return (picture - low) / max(float(high - low), 1e-6)


def _picture(plane: Array, words: str) -> Bitmap:
    file = io.BytesIO()
    rows, columns = plane.shape[:2]
    if max(rows, columns) > _MOST_PIXELS:
        plane = plane[:_MOST_PIXELS, :_MOST_PIXELS]
        words += (
            f"; the first {min(rows, _MOST_PIXELS)} of {rows} rows, {min(columns, _MOST_PIXELS)} of {columns} columns"
        )
    pixels = Pixels.fromarray((np.clip(plane, 0.0, 1.0) * 255.0).round().astype(np.uint8))
    pixels.save(file, format="PNG", optimize=True)
    png = base64.b64encode(file.getvalue()).decode()
    return {"png": png, "words": words, "width": pixels.width, "height": pixels.height}
