"""What a network must know of a request's data: found without reading all of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from syno_lab.errors import SpecError
from syno_lab.evaluate.cifar import find_cifar
from syno_lab.evaluate.data import DIGITS, holds_cifar
from syno_lab.evaluate.image_folder import SIZE, class_names, is_image_folder
from syno_lab.evaluate.text_data import TextData, is_text_file, load_text
from syno_lab.evaluate.trial.request import TrialRequest
from syno_lab.models.registry import backbone

CONTEXT = 64
"""Tokens of a window of text, unless said otherwise."""


@dataclass(frozen=True)
class Facts:
    """The kind of data that a network is for.

    ``domain``: images or text; ``outputs``: classes or tokens of the vocabulary; ``channels``: of images; ``size``: the
    height and width that the network sees, or the tokens of a window; ``stored_size``: the height and width of the
    images as they are handed out, where they are squares.
    """

    domain: Literal["images", "text"]
    outputs: int
    channels: int
    size: int
    stored_size: int | None = None


def facts_of(request: TrialRequest) -> Facts:
    """The kind of the request's data.

    Raises:
        DataError: where it is not there.
        SpecError: for a resolution or a context that makes no sense.
    """
    if request.resolution is not None and request.resolution < 1:
        raise SpecError(f"resolution: expected a whole number from 1 up, found {request.resolution}")
    if request.data != DIGITS and is_text_file(request.data):
        if request.resolution is not None:
            raise SpecError(f"expected no resolution for a text, found {request.resolution}")
        return Facts("text", text_of(request).tokens.size, 1, context_of(request))
    if request.data == DIGITS:
        outputs, channels, stored = 10, 1, 8
    else:
        path = Path(request.data).expanduser()
        if not holds_cifar(path) and is_image_folder(path):
            classes = len(class_names(path))
            size = request.resolution or SIZE
            return Facts("images", classes, 3, size, size)
        _, form = find_cifar(path)
        outputs, channels, stored = len(form.classes), 3, 32
    return Facts("images", outputs, channels, request.resolution or stored, stored)


def context_of(request: TrialRequest) -> int:
    """Tokens of a window of the request's text; SpecError for what is no such number."""
    context = request.options.get("context", min(CONTEXT, backbone(request.backbone).size))
    if isinstance(context, bool) or not isinstance(context, int) or context < 1:
        raise SpecError(f"context: expected a whole number from 1 up, found {context!r}")
    return context


def text_of(request: TrialRequest) -> TextData:
    """The request's text as tokens; DataError where it cannot be read."""
    path = Path(request.data).expanduser()
    return _text(str(path), path.stat().st_mtime_ns, request.options.get("tokens", "bytes"))


@lru_cache(maxsize=2)
def _text(path: str, _changed: int, kind: Literal["bytes", "characters"]) -> TextData:
    return load_text(path, kind)
