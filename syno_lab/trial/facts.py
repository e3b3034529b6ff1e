"""Find the facts about a request's data that a network needs, without reading all of the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch

from syno_lab.data.cifar import find_cifar
from syno_lab.data.datasets import DIGITS, data_path, is_class_folders
from syno_lab.data.image_folder import own_size
from syno_lab.data.layout import find_layout
from syno_lab.data.own import own_data
from syno_lab.data.text import TextData, is_text_file, load_text
from syno_lab.errors import DataError, SpecError
from syno_lab.inputs import quoted
from syno_lab.models.registry import OWN, backbone
from syno_lab.models.tokens import VOCABULARY, TokenKind
from syno_lab.trial.request import TrialRequest

CONTEXT = 64
"""The default number of tokens in a window of text."""


@dataclass(frozen=True)
class Facts:
    """The facts about a request's data that decide the network's shape.

    ``domain``: images or text; ``outputs``: classes or tokens of the vocabulary; ``channels``: channels of images;
    ``size``: height and width of the network's input (the shorter side of oblongs), or the tokens of a window;
    ``stored_size``: height and width of stored square images; ``shape`` and ``dtype``: set for oblong images and for
    examples of the user's own data.
    """

    domain: Literal["images", "text"]
    outputs: int
    channels: int
    size: int
    stored_size: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: Any = None


def facts_of(request: TrialRequest) -> Facts:
    """Return the facts about the request's data.

    Raises DataError if the data is missing; SpecError for an invalid resolution or context, and for folds of a text or
    of own data.
    """
    if request.resolution is not None and request.resolution < 1:
        raise SpecError(f"resolution: expected a whole number from 1 up, found {request.resolution}")
    _check_folds(request)
    if request.data.startswith(OWN):
        if request.resolution is not None:
            raise SpecError(f"expected no resolution for data of your own, found {request.resolution}")
        own = own_data(request.data)
        return Facts("images", own.classes, (own.shape or (1,))[0], (own.shape or (1,))[-1], None, own.shape, own.dtype)
    if request.data != DIGITS and is_text_file(request.data):
        if request.resolution is not None:
            raise SpecError(f"expected no resolution for a text, found {request.resolution}")
        return Facts("text", text_of(request).tokens.size, 1, context_of(request))
    if request.data == DIGITS:
        outputs, channels, stored = 10, 1, 8
    else:
        path = data_path(request.data)
        if is_class_folders(path):
            layout, side = find_layout(path), request.resolution
            size = own_size(path, layout) if side is None else (side, side)
            if size[0] == size[1]:
                return Facts("images", len(layout.train), 3, size[0], size[0])
            return Facts("images", len(layout.train), 3, min(size), None, (3, *size), torch.float32)
        _, form = find_cifar(path)
        outputs, channels, stored = len(form.classes), 3, 32
    return Facts("images", outputs, channels, request.resolution or stored, stored)


def _check_folds(request: TrialRequest) -> None:
    if request.fold is not None and not 1 <= request.fold <= (request.folds or 0):
        raise SpecError(f"fold: expected a whole number from 1 to folds, {request.folds}, found {request.fold}")
    if request.folds is None:
        return
    for name, value in (("holdout", request.holdout), ("stopping", request.stopping)):
        if value is not None:
            raise SpecError(f"folds: expected no {name} beside {request.folds} folds; leave one of the two out")
    is_own = request.data.startswith(OWN)
    if is_own or (request.data != DIGITS and is_text_file(request.data)):
        found = "data of your own" if is_own else "a text"  # a user's parts may transform images differently
        raise SpecError(f"folds: expected CIFAR, digits or images in class folders, found {found}; leave folds out")


def context_of(request: TrialRequest) -> int:
    """Return the number of tokens in a window of text. Raises SpecError unless this is a whole number above 0."""
    context = request.options.get("context", min(CONTEXT, backbone(request.backbone).size))
    if isinstance(context, bool) or not isinstance(context, int) or context < 1:
        raise SpecError(f"context: expected a whole number from 1 up, found {quoted(context)}")
    return context


def text_of(request: TrialRequest) -> TextData:
    """Return the request's text as tokens. Raises DataError if the text cannot be read."""
    path = data_path(request.data)
    try:
        changed = path.stat().st_mtime_ns
    except OSError as error:
        raise DataError(f"expected a text file at {path}, found: {error.strerror or error}") from None
    options = request.options
    return _text(str(path), changed, options.get("tokens", "bytes"), options.get("vocabulary", VOCABULARY))


@lru_cache(maxsize=2)
def _text(path: str, _changed: int, kind: TokenKind, vocabulary: int) -> TextData:
    return load_text(path, kind, vocabulary=vocabulary)
