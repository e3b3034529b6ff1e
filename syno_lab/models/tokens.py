"""Text as tokens for a GPT: its bytes, or its characters. Nothing is learnt and nothing is downloaded.

Shapes: T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from syno_lab.errors import DataError, SpecError
from syno_lab.inputs import quoted

TokenKind = Literal["bytes", "characters"]


@dataclass(frozen=True)
class Tokens:
    """Numbers for the pieces of a text: without an ``alphabet`` the 256 bytes of UTF-8, else its characters in order.

    Raises:
        SpecError: for an alphabet that is empty or has a character twice.
    """

    alphabet: str | None = None

    def __post_init__(self) -> None:
        if self.alphabet is not None and (not self.alphabet or len(set(self.alphabet)) != len(self.alphabet)):
            raise SpecError(f"an alphabet has each of its characters once, found {quoted(self.alphabet[:40])}")

    @property
    def size(self) -> int:
        """The vocabulary: how many tokens there are."""
        return 256 if self.alphabet is None else len(self.alphabet)

    def encode(self, text: str) -> NDArray[np.int64]:
        """``text`` as tokens [T].

        Raises:
            DataError: for a character that the alphabet lacks, with its place.
        """
        if self.alphabet is None:
            return np.frombuffer(text.encode(), np.uint8).astype(np.int64)
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        letters = np.frombuffer(self.alphabet.encode("utf-32-le", "surrogatepass"), np.uint32)
        order = np.argsort(letters)
        found = order[np.searchsorted(letters[order], points).clip(max=len(letters) - 1)]
        wrong = np.flatnonzero(letters[found] != points)
        if wrong.size:
            place = int(wrong[0])
            raise DataError(
                f"expected characters of an alphabet of {self.size}, found {quoted(text[place])} at {place}; "
                "take bytes, or an alphabet of this text too"
            )
        return found.astype(np.int64)

    def decode(self, tokens: NDArray[np.int64]) -> str:
        """Tokens [T] as text; bytes that are no UTF-8 become the sign for that.

        Raises:
            DataError: for a number that is no token.
        """
        numbers = np.asarray(tokens)
        if numbers.size and (numbers.min() < 0 or numbers.max() >= self.size):
            raise DataError(f"expected tokens from 0 to {self.size - 1}, found {numbers.min()} to {numbers.max()}")
        if self.alphabet is None:
            return numbers.astype(np.uint8).tobytes().decode("utf-8", "replace")
        return "".join(self.alphabet[number] for number in numbers)


def tokens_for(text: str, kind: TokenKind = "bytes") -> Tokens:
    """The tokens for ``text``: bytes, which fit every text, or the characters that occur in it, sorted.

    Raises:
        SpecError: for another kind, or for characters of an empty text.
    """
    if kind == "bytes":
        return Tokens()
    if kind != "characters":
        raise SpecError(f"tokens: expected 'bytes' or 'characters', found {quoted(kind)}")
    return Tokens("".join(sorted(set(text))))
