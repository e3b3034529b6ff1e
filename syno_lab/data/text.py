"""Read a text file as data for a language model, with a training part and a test part.

Shapes: T tokens. Nothing is downloaded. Tokens are the text's bytes, its characters, or pieces of words, which are
learnt from the training part (:mod:`syno_lab.models.tokens`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sized
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from syno_lab.errors import DataError
from syno_lab.inputs import is_file, quoted, read_bytes
from syno_lab.models.tokens import VOCABULARY, TokenKind, Tokens, tokens_for

TEST_SHARE = 0.1
"""The share of the text that is the test part, at the end of the text."""

MOST_BYTES = 1 << 30
"""The largest size of a text in bytes; a text may also fill at most a sixteenth of the free memory."""


@dataclass(frozen=True, eq=False)
class TextData:
    """A text as tokens int64 [T]: the training part ``train``, then the test part ``test``; the arrays are read-only.

    ``name``: the file's name; ``source``: its path. Raises DataError if a part is too short to predict a token, or if a
    number in a part is not a token.
    """

    name: str
    source: str
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    tokens: Tokens

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            values = getattr(self, part)
            if values.dtype != np.int64 or values.ndim != 1 or len(values) < 2:
                raise DataError(
                    f"{self.source}: expected a text of at least two tokens to {part} on, found "
                    f"{values.dtype} {list(values.shape)}; take a longer text"
                )
            if values.min() < 0 or values.max() >= self.tokens.size:
                raise DataError(
                    f"{self.source}: expected tokens from 0 to {self.tokens.size - 1}, "
                    f"found {values.min()} to {values.max()}"
                )
            values.setflags(write=False)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the tokens and of the vocabulary, 128 bits in hexadecimal."""
        meaning = self.tokens.learnt or self.tokens.alphabet or ""
        digest = hashlib.blake2b(meaning.encode("utf-8", "surrogatepass"), digest_size=16)
        for values in (self.train, self.test):
            digest.update(repr(values.shape).encode())
            digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()

    def bytes_per_token(self, most: int | None = None) -> float:
        """Return the mean number of UTF-8 bytes of the first ``most`` predicted tokens (test tokens except the first).

        A loss in nats per token, divided by this mean, is a loss per byte. Losses per byte compare vocabularies.
        """
        return float(self.tokens.lengths[self.test[1 : None if most is None else most + 1]].mean())

    def holding_out(self, share: float) -> TextData:
        """Return a text whose test part is the last ``share`` of the training part; the old test part is unused.

        Raises DataError for a share that is not between 0 and 1.
        """
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
            raise DataError(f"holdout: expected a share of the training text between 0 and 1, found {quoted(share)}")
        first = _first_of_test(self.train, share)
        return replace(self, train=self.train[:first].copy(), test=self.train[first:].copy())


def is_text_file(path: str | Path) -> bool:
    """Return whether ``path`` is a file; a data set of images is always a folder."""
    try:
        return is_file(Path(path).expanduser())
    except RuntimeError:  # `~name` in the path names an unknown user
        return False


def load_text(
    path: str | Path, kind: TokenKind = "bytes", *, test_share: float = TEST_SHARE, vocabulary: int = VOCABULARY
) -> TextData:
    """Read a text in UTF-8 as tokens; the last ``test_share`` of the text is the test part.

    With ``bpe``, ``vocabulary`` is the number of tokens, which are learnt from the training part alone. For ``bpe`` the
    test part is a share of the characters, not of the tokens.

    Raises:
        DataError: for a file that is missing, cannot be read, is not text, is too short, or has no words for ``bpe``.
        SpecError: for an unknown ``kind``, or a vocabulary out of range.
    """
    file = Path(path).expanduser()
    if not 0 < test_share < 1:
        raise DataError(f"expected test_share as a number between 0 and 1, found {quoted(test_share)}")
    try:
        # A token takes eight bytes, and the characters stay in memory beside the tokens.
        most = min(MOST_BYTES, psutil.virtual_memory().available // 16)
        text = read_bytes(file, most).decode()
    except OSError as error:
        raise DataError(f"expected a text file at {file}, found: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"expected a text in UTF-8 at {file}, found the byte {error.object[error.start]:#04x} at {error.start}; "
            "convert it first"
        ) from None
    if not text:
        raise DataError(f"expected a text at {file}, found an empty file")
    if kind == "bpe":
        first = _first_of_test(text, test_share)
        try:
            tokens = tokens_for(text[:first], kind, vocabulary)
        except DataError as error:
            raise DataError(f"{file}: {error}") from None
        train, test = tokens.encode(text[:first]), tokens.encode(text[first:])
    else:
        tokens = tokens_for(text, kind)
        numbers = tokens.encode(text)
        first = _first_of_test(numbers, test_share)
        train, test = numbers[:first].copy(), numbers[first:].copy()
    return TextData(file.name, str(file), train, test, tokens)


def _first_of_test(values: Sized, share: float) -> int:
    """Return the index at which the last ``share`` of the values begins; this share has at least two values."""
    return max(0, len(values) - max(2, round(len(values) * share)))
